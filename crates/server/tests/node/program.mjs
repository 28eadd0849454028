// Thirty steps of @azure/cosmos against a server whose clock stands until it is moved.
//
//     node program.mjs ENDPOINT
//
// Prints a line for each step that holds, and ends with status 1 at the first that does not.

import assert from "node:assert/strict";
import { ChangeFeedStartFrom, CosmosClient } from "@azure/cosmos";

const endpoint = process.argv[2];
const client = new CosmosClient({ endpoint, key: "ZWJidGlkZQ==", connectionPolicy: { enableBackgroundEndpointRefreshing: false } });
let steps = 0;

async function step(name, work) {
  try {
    await work();
  } catch (error) {
    console.error(`${name}: ${error.stack ?? error}`);
    process.exit(1);
  }
  steps += 1;
  console.log(`${steps} ${name}`);
}

const refused = (code) => (error) => {
  assert.equal(error.code, code, `${error.code} ${error.message}`);
  return true;
};

const advance = async (by) => {
  const reply = await fetch(new URL("_clock", endpoint), { method: "POST", body: JSON.stringify({ advance: by }) });
  assert.equal(reply.status, 200);
};

const ids = (items) => items.map((item) => item.id);
let database;
let container;
let etag;
let changes;

await step("the account is read", async () => assert.ok((await client.getDatabaseAccount()).resource));
await step("a database is created where there is none", async () => {
  database = (await client.databases.createIfNotExists({ id: "shop" })).database;
  assert.equal((await client.databases.createIfNotExists({ id: "shop" })).statusCode, 200);
});
await step("a container with a default ttl is created", async () => {
  const made = await database.containers.createIfNotExists({ id: "carts", partitionKey: { paths: ["/user"], version: 2 }, defaultTtl: -1 });
  container = made.container;
  assert.equal(made.resource.defaultTtl, -1);
});
await step("containers are listed", async () => assert.deepEqual(ids((await database.containers.readAll().fetchAll()).resources), ["carts"]));
await step("a container is read", async () => assert.deepEqual((await container.read()).resource.partitionKey.paths, ["/user"]));
await step("an item is created", async () => {
  const made = await container.items.create({ id: "1", user: "ada", n: 1 });
  assert.equal(made.statusCode, 201);
  etag = made.etag;
});
await step("an item is not created twice", async () => assert.rejects(container.items.create({ id: "1", user: "ada" }), refused(409)));
await step("an item is read", async () => assert.equal((await container.item("1", "ada").read()).resource.n, 1));
await step("an item of another partition is not found", async () => assert.equal((await container.item("1", "bob").read()).statusCode, 404));
await step("an item is replaced by its etag", async () => {
  const accessCondition = { type: "IfMatch", condition: etag };
  assert.equal((await container.item("1", "ada").replace({ id: "1", user: "ada", n: 2 }, { accessCondition })).resource.n, 2);
});
await step("a stale etag replaces nothing", async () => {
  const accessCondition = { type: "IfMatch", condition: etag };
  await assert.rejects(container.item("1", "ada").replace({ id: "1", user: "ada", n: 3 }, { accessCondition }), refused(412));
});
await step("an item is upserted", async () => {
  assert.equal((await container.items.upsert({ id: "2", user: "ada", n: 5 })).statusCode, 201);
  assert.equal((await container.items.upsert({ id: "2", user: "ada", n: 6 })).statusCode, 200);
});
await step("an item is patched", async () => {
  const patched = await container.item("2", "ada").patch([{ op: "incr", path: "/n", value: 4 }, { op: "add", path: "/tags", value: ["new"] }]);
  assert.deepEqual([patched.resource.n, patched.resource.tags], [10, ["new"]]);
});
await step("a patch has a condition", async () => {
  const patch = { condition: "from c where c.n = 11", operations: [{ op: "set", path: "/n", value: 0 }] };
  await assert.rejects(container.item("2", "ada").patch(patch), refused(412));
});
await step("a batch is done whole", async () => {
  const operations = [
    { operationType: "Create", resourceBody: { id: "3", user: "ada", n: 3 } },
    { operationType: "Upsert", resourceBody: { id: "4", user: "ada", n: 4 } },
    { operationType: "Read", id: "1" },
    { operationType: "Delete", id: "4" },
  ];
  const done = await container.items.batch(operations, "ada");
  assert.deepEqual(done.result.map((result) => result.statusCode), [201, 201, 200, 204]);
});
await step("a batch is done whole or not", async () => {
  const operations = [
    { operationType: "Create", resourceBody: { id: "5", user: "ada" } },
    { operationType: "Create", resourceBody: { id: "3", user: "ada" } },
  ];
  const refusedBatch = await container.items.batch(operations, "ada");
  assert.deepEqual(refusedBatch.result.map((result) => result.statusCode), [424, 409]);
  assert.equal((await container.item("5", "ada").read()).statusCode, 404);
});
await step("items are written in bulk", async () => {
  const operations = [..."abcdefghij"].map((id, n) => ({ operationType: "Create", partitionKey: `user-${n}`, resourceBody: { id, user: `user-${n}`, n } }));
  const done = await container.items.executeBulkOperations(operations);
  assert.ok(done.every((result) => result.response?.statusCode === 201), JSON.stringify(done.map((result) => result.error)));
});
await step("a partition is queried", async () => {
  const query = { query: "SELECT * FROM c WHERE c.n > @n", parameters: [{ name: "@n", value: 2 }] };
  const found = await container.items.query(query, { partitionKey: "ada" }).fetchAll();
  assert.deepEqual(ids(found.resources).sort(), ["2", "3"]);
});
await step("all partitions are queried in an order", async () => {
  const found = await container.items.query("SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 0 LIMIT 3").fetchAll();
  assert.deepEqual(found.resources, ["2", "j", "i"]);
});
await step("items are counted", async () => assert.deepEqual((await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [13]));
await step("items are grouped", async () => {
  const found = await container.items.query("SELECT c.user, COUNT(1) AS many FROM c GROUP BY c.user").fetchAll();
  assert.equal(found.resources.find((row) => row.user === "ada").many, 3);
});
await step("a query has pages", async () => {
  const pages = container.items.query("SELECT * FROM c", { maxItemCount: 5 });
  let all = [];
  let count = 0;
  while (pages.hasMoreResults()) {
    all = all.concat((await pages.fetchNext()).resources ?? []);
    count += 1;
  }
  assert.equal(new Set(ids(all)).size, 13);
  assert.ok(count >= 3);
});
await step("a join is refused", async () => assert.rejects(container.items.query("SELECT * FROM c JOIN t IN c.tags").fetchAll(), refused(400)));
await step("items are listed", async () => assert.equal((await container.items.readAll().fetchAll()).resources.length, 13));
await step("changes are told from the beginning", async () => {
  const feed = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
  let seen = [];
  for await (const page of feed.getAsyncIterator()) {
    if (page.statusCode === 304) {
      changes = page.continuationToken;
      break;
    }
    seen = seen.concat(page.result);
  }
  assert.equal(new Set(ids(seen)).size, 13);
});
await step("changes are told from where the last page ended", async () => {
  await container.items.create({ id: "6", user: "bob" });
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Continuation(changes) });
  assert.deepEqual(ids((await iterator.readNext()).result), ["6"]);
});
await step("an item ends by its ttl and not before", async () => {
  await container.items.create({ id: "7", user: "ada", ttl: 60 });
  await advance("59999ms");
  assert.equal((await container.item("7", "ada").read()).statusCode, 200);
  await advance("1ms");
  assert.equal((await container.item("7", "ada").read()).statusCode, 404);
});
await step("the default ttl is changed", async () => {
  const { resource } = await container.read();
  assert.equal((await container.replace({ ...resource, defaultTtl: 3600 })).resource.defaultTtl, 3600);
  await advance("2h");
  assert.deepEqual((await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [0]);
});
await step("an item is deleted", async () => {
  await container.items.create({ id: "8", user: "ada" });
  assert.equal((await container.item("8", "ada").delete()).statusCode, 204);
  await assert.rejects(container.item("8", "ada").delete(), refused(404));
});
await step("the database is deleted", async () => {
  await container.delete();
  assert.equal((await database.delete()).statusCode, 204);
});
assert.equal(steps, 30);
client.dispose();
