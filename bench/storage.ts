import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { FileId, Incarnation, ServerId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import type { Epoch } from '../replica/epoch.ts';
import { DataFolder } from '../server/storage/data-folder.ts';
import { DiskStore } from '../server/storage/disk-store.ts';
import { systemWorld } from '../world/system-world.ts';

/** What one disk store does, without network or protocol. `node bench/storage.ts [folder] [objectBytes]` */
const parent = process.argv[2] ?? os.tmpdir();
const objectBytes = Number(process.argv[3] ?? 128 * 1024);
const folderPath = fs.mkdtempSync(path.join(parent, 'leasehold-bench-'));
const folder = DataFolder.open(folderPath, { world: systemWorld, cluster: 'bench', server: 'a' as ServerId });
const store = await DiskStore.open(folder);
const epoch: Epoch = { counter: 1, server: 'a' as ServerId, incarnation: 1 as Incarnation };
const noSessions = new Uint8Array(64);
const MIB = 1024 * 1024;
let files = 0;

async function begin(): Promise<FileId> {
  const file = ++files as FileId;
  store.create(file, { number: 1, members: ['a' as ServerId] }, objectBytes);
  await store.promise(file, epoch);
  await store.install(file, epoch, 0, noSessions, null);
  return file;
}

/** Runs `count` pieces of work, `depth` of them at a time. @returns seconds */
async function pipelined(
  count: number,
  depth: number,
  work: (at: number) => Promise<unknown>,
): Promise<number> {
  const start = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: depth }, worker));
  return (performance.now() - start) / 1000;
}

function write(file: FileId, seq: number, offset: number, bytes: Uint8Array): Promise<void> {
  return store.apply(file, epoch, seq, { kind: 'write', offset, bytes, modifiedNs: 1n }, noSessions);
}

/** @returns seconds */
function rawWrite(bytes: Uint8Array, count: number): number {
  const scratch = path.join(folderPath, 'objects', 'scratch');
  const fd = fs.openSync(scratch, 'w');
  const start = performance.now();
  for (let at = 0; at < count; at++) fs.writeSync(fd, bytes, 0, bytes.length, at * bytes.length);
  const seconds = (performance.now() - start) / 1000;
  fs.closeSync(fd);
  fs.rmSync(scratch);
  return seconds;
}

function report(name: string, amount: number, unit: string, seconds: number): void {
  console.log(
    `${name.padEnd(52)} ${Math.round(amount / seconds)
      .toString()
      .padStart(8)} ${unit}/s`,
  );
}

console.log(`objects of ${objectBytes} bytes in ${folderPath}`);
try {
  const mebibyte = new Uint8Array(MIB).fill(7);
  const page = new Uint8Array(4096).fill(9);

  // A virtual machine gets its memory at first touch, which is slower than anything measured here: the page cache is
  // filled once, and the second time is the reference.
  rawWrite(mebibyte, 1536);
  report('bare pwrite of 1 MiB, for comparison', 512, 'MiB', rawWrite(mebibyte, 512));

  const sequential = await begin();
  let seconds = await pipelined(512, 8, (at) => write(sequential, at + 1, at * MIB, mebibyte));
  report('sequential writes of 1 MiB, 8 at a time', 512, 'MiB', seconds);
  seconds = await pipelined(1, 1, () => store.flush(sequential));
  report('  and their flush', 512, 'MiB', seconds);
  seconds = await pipelined(512, 4, (at) => store.read(sequential, at * MIB, MIB));
  report('sequential reads of 1 MiB, 4 at a time', 512, 'MiB', seconds);
  const one = await begin();
  seconds = await pipelined(256, 1, (at) => write(one, at + 1, at * MIB, mebibyte));
  report('sequential writes of 1 MiB, one at a time', 256, 'MiB', seconds);

  const appended = await begin();
  seconds = await pipelined(20_000, 32, (at) => write(appended, at + 1, at * 4096, page));
  report('appends of 4 KiB, 32 at a time', 20_000, 'ops', seconds);
  const appendedOne = await begin();
  seconds = await pipelined(4_000, 1, (at) => write(appendedOne, at + 1, at * 4096, page));
  report('appends of 4 KiB, one at a time', 4_000, 'ops', seconds);
  const flushed = await begin();
  seconds = await pipelined(200, 1, async (at) => {
    await write(flushed, at + 1, at * 4096, page);
    await store.flush(flushed);
  });
  report('appends of 4 KiB, each flushed, one at a time', 200, 'ops', seconds);

  const random = await begin();
  const randomBytes = 64 * MIB;
  await pipelined(64, 8, (at) => write(random, at + 1, at * MIB, mebibyte));
  await store.flush(random);
  const prng = new Prng(1);
  const place = (): number => prng.integer(0, randomBytes / 4096 - 1) * 4096;
  seconds = await pipelined(6_000, 32, (at) => write(random, 65 + at, place(), page));
  report('random overwrites of 4 KiB, 32 at a time', 6_000, 'ops', seconds);
  seconds = await pipelined(1_000, 1, (at) => write(random, 6065 + at, place(), page));
  report('random overwrites of 4 KiB, one at a time', 1_000, 'ops', seconds);
  seconds = await pipelined(200, 1, async (at) => {
    await write(random, 7065 + at, place(), page);
    await store.flush(random);
  });
  report('random overwrites of 4 KiB, each flushed', 200, 'ops', seconds);
  seconds = await pipelined(5_000, 16, () => store.read(random, place(), 4096));
  report('random reads of 4 KiB, 16 at a time', 5_000, 'ops', seconds);

  seconds = await pipelined(1_000, 32, async () => {
    await write(await begin(), 1, 0, page);
  });
  report('new files (promised, installed, 4 KiB), 32 at a time', 1_000, 'files', seconds);
} finally {
  await store.close();
  folder.close();
  fs.rmSync(folderPath, { recursive: true, force: true });
}
