//! However the files are damaged, the answer is right or names the damage.

mod damage;
mod fuzz_smoke;
mod memory;
mod put_back;
mod repair;
mod rot;
mod swapped;
