import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { crc32 } from 'node:zlib';
import type { FileId, Incarnation, ServerId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import type { Epoch } from '../replica/epoch.ts';
import { DataFolder } from '../server/storage/data-folder.ts';
import { DiskStore } from '../server/storage/disk-store.ts';
import { diskFileOps } from '../server/storage/file-ops.ts';
import { SharedFlush } from '../server/storage/shared-flush.ts';
import { systemWorld } from '../world/system-world.ts';

/**
 * Random overwrites of 4 KiB in a file of 64 MiB: our store, which copies an object, and a plain journal whose writes
 * are applied to the file later. `node bench/overwrite.ts [folder] [seconds per run] [runs]`
 *
 * The journal is a prototype and does less: it has no sessions, no index and no undo of unsynced writes, and keeps its
 * checksums, one per 4 KiB, in memory only. Its figures are the most that a journal can reach.
 */
const parent = process.argv[2] ?? os.tmpdir();
const runMs = Number(process.argv[3] ?? 1) * 1000;
const runs = Number(process.argv[4] ?? 3);
const BLOCK = 4096;
const FILE_BYTES = 64 * 1024 * 1024;
const JOURNAL_BYTES_MAX = 16 * 1024 * 1024;
const HEADER_BYTES = 32;

interface Candidate {
  readonly name: string;
  write(block: number, bytes: Uint8Array): Promise<void>;
  flush(): Promise<void>;
  close(): Promise<void>;
}

async function ours(objectBytes: number): Promise<Candidate> {
  const folderPath = fs.mkdtempSync(path.join(parent, 'leasehold-overwrite-'));
  const folder = DataFolder.open(folderPath, {
    world: systemWorld,
    cluster: 'bench',
    server: 'a' as ServerId,
  });
  const store = await DiskStore.open(folder);
  const file = 1 as FileId;
  const epoch: Epoch = { counter: 1, server: 'a' as ServerId, incarnation: 1 as Incarnation };
  const sessions = new Uint8Array(64);
  let seq = 0;
  const apply = (offset: number, bytes: Uint8Array) =>
    store.apply(file, epoch, ++seq, { kind: 'write', offset, bytes, modifiedNs: 1n }, sessions);
  store.create(file, { number: 1, members: ['a' as ServerId] }, objectBytes);
  await store.promise(file, epoch);
  await store.install(file, epoch, 0, sessions, null);
  for (let at = 0; at < FILE_BYTES; at += 1 << 20) await apply(at, Buffer.alloc(1 << 20, at >> 20));
  await store.flush(file);
  return {
    name: `copy on write, objects of ${objectBytes / 1024} KiB`,
    write: (block, bytes) => apply(block * BLOCK, bytes),
    flush: () => store.flush(file),
    async close() {
      await store.close();
      folder.close();
      fs.rmSync(folderPath, { recursive: true });
    },
  };
}

/** Each write is appended to the journal; when that is large, the newest versions are written to the file. */
class Journal implements Candidate {
  readonly name = 'journal, then in place';
  readonly #folder = fs.mkdtempSync(path.join(parent, 'leasehold-journal-'));
  readonly #file: number;
  readonly #journal: number;
  readonly #flush: SharedFlush;
  readonly #sums = new Uint32Array(FILE_BYTES / BLOCK);
  #newest = new Map<number, Uint8Array>();
  #end = 0;
  #folding: Promise<void> | null = null;

  constructor() {
    this.#file = fs.openSync(path.join(this.#folder, 'file'), 'w+');
    for (let at = 0; at < FILE_BYTES; at += 1 << 20)
      fs.writeSync(this.#file, Buffer.alloc(1 << 20, at >> 20), 0, 1 << 20, at);
    fs.fsyncSync(this.#file);
    this.#journal = fs.openSync(path.join(this.#folder, 'journal'), 'w+');
    this.#flush = new SharedFlush(() => diskFileOps.datasync(this.#journal));
  }

  async write(block: number, bytes: Uint8Array): Promise<void> {
    while (this.#folding !== null) await this.#folding;
    if (this.#end > JOURNAL_BYTES_MAX) {
      this.#folding = this.#fold().finally(() => {
        this.#folding = null;
      });
      await this.#folding;
    }
    const header = Buffer.alloc(HEADER_BYTES);
    const sum = crc32(bytes);
    header.writeDoubleLE(block * BLOCK, 0);
    header.writeUInt32LE(bytes.length, 8);
    header.writeUInt32LE(sum, 12);
    const at = this.#end;
    this.#end += HEADER_BYTES + bytes.length;
    await diskFileOps.write(this.#journal, [header, bytes], at);
    this.#sums[block] = sum;
    this.#newest.set(block, bytes);
  }

  flush(): Promise<void> {
    return this.#flush.request();
  }

  async close(): Promise<void> {
    if (this.#folding !== null) await this.#folding;
    fs.closeSync(this.#journal);
    fs.closeSync(this.#file);
    fs.rmSync(this.#folder, { recursive: true });
  }

  async #fold(): Promise<void> {
    await this.#flush.request();
    const newest = [...this.#newest].sort(([a], [b]) => a - b);
    this.#newest = new Map();
    for (let at = 0; at < newest.length; at += 64) {
      const some = newest.slice(at, at + 64);
      await Promise.all(some.map(([block, bytes]) => diskFileOps.write(this.#file, [bytes], block * BLOCK)));
    }
    await diskFileOps.datasync(this.#file);
    await diskFileOps.truncate(this.#journal, 0);
    this.#end = 0;
  }
}

/** The loads: the number of concurrent writers, with a flush after each write or none. */
const LOADS = [
  { name: 'one at a time', depth: 1, flushes: false },
  { name: '32 at a time', depth: 32, flushes: false },
  { name: 'one at a time, each flushed', depth: 1, flushes: true },
  { name: '32 at a time, each flushed', depth: 32, flushes: true },
] as const;

/** @returns writes per second */
async function measure(candidate: Candidate, load: (typeof LOADS)[number], seed: number): Promise<number> {
  const prng = new Prng(seed);
  const endMs = performance.now() + runMs;
  const startMs = performance.now();
  let count = 0;
  const writer = async (): Promise<void> => {
    while (performance.now() < endMs) {
      await candidate.write(prng.integer(0, FILE_BYTES / BLOCK - 1), Buffer.alloc(BLOCK, ++count));
      if (load.flushes) await candidate.flush();
    }
  };
  await Promise.all(Array.from({ length: load.depth }, writer));
  const perS = count / ((performance.now() - startMs) / 1000);
  // Unwritten bytes in the kernel must not slow the next candidate.
  await candidate.flush();
  return perS;
}

const candidates: Candidate[] = [await ours(128 * 1024), await ours(16 * 1024), new Journal()];
try {
  const journal = candidates.at(-1) as Candidate;
  for (const load of LOADS) {
    const seen = new Map<Candidate, number[]>(candidates.map((candidate) => [candidate, []]));
    // In turn, so that other load of the machine affects all of them.
    for (let run = 1; run <= runs; run++) {
      for (const candidate of candidates) seen.get(candidate)?.push(await measure(candidate, load, run));
    }
    const median = (candidate: Candidate): number =>
      (seen.get(candidate) ?? []).sort((a, b) => a - b)[Math.floor(runs / 2)] ?? 0;
    process.stdout.write(`${load.name}\n`);
    for (const candidate of candidates) {
      const spread = (seen.get(candidate) ?? []).map((value) => Math.round(value)).join(' ');
      const ratio = (median(journal) / median(candidate)).toFixed(1);
      process.stdout.write(
        `  ${candidate.name.padEnd(38)} ${String(Math.round(median(candidate))).padStart(7)}/s  journal is ${ratio} times as fast  (${spread})\n`,
      );
    }
  }
} finally {
  for (const candidate of candidates) await candidate.close();
}
