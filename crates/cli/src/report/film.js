// Steps through the frames, one open at a time; without this they are a list.
"use strict";
const frames = [...document.querySelectorAll("#film > details")];
if (frames.length > 1) {
  const bar = document.createElement("div");
  bar.className = "steps";
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: frames.length - 1 });
  slider.setAttribute("aria-label", "edit");
  const button = (text, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    made.addEventListener("click", act);
    return made;
  };
  let timer = 0, isStepping = true;
  const show = (at) => {
    const to = Math.min(Math.max(at, 0), frames.length - 1);
    slider.value = to;
    slider.setAttribute("aria-valuetext", frames[to].querySelector("summary").textContent);
    frames.forEach((frame, i) => { frame.hidden = isStepping && i !== to; frame.open = i === to; });
    if (to === frames.length - 1) stop();
  };
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
  const play = button("Play", () => {
    if (timer) return stop();
    if (Number(slider.value) === frames.length - 1) show(0);
    timer = setInterval(() => show(Number(slider.value) + 1), 800);
    play.textContent = "Stop";
  });
  const list = button("Show all", () => {
    isStepping = !isStepping;
    list.textContent = isStepping ? "Show all" : "Show one";
    show(Number(slider.value));
  });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  bar.append(
    button("Earlier", () => { stop(); show(Number(slider.value) - 1); }),
    button("Later", () => { stop(); show(Number(slider.value) + 1); }),
    play, list, slider);
  document.getElementById("film").before(bar);
  show(frames.length - 1);
}
