/** A file that `fio` writes and verifies: its command lines, its output, and the bytes that it must have written. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

/** Longer than the mount lets any call wait; a fio that has not ended by then hangs. */
const HANGS_MS = 300_000;

export interface FioJob {
  /** Also the name of its file. */
  readonly name: string;
  readonly order: 'write' | 'randwrite';
  readonly blockBytes: number;
  readonly sizeBytes: number;
  /** Syncs after so many writes; 0 for never. */
  readonly syncEvery: number;
  /** How long the writing takes without stalls, in milliseconds; reading takes half of it. */
  readonly writeMs: number;
}

export interface FioResult {
  /** The errors that fio printed; null if each call succeeded and each block had what was written. */
  readonly error: string | null;
  /** The longest call, in milliseconds. */
  readonly stallMs: number;
}

export interface FioPause {
  /** Since fio began, in milliseconds. */
  readonly atMs: number;
  readonly ms: number;
}

/**
 * Writes a file whose contents and order depend on the seed, at the job's rate, then reads and verifies all of it.
 * @param seed of the bytes and of the order
 * @param log prefix of the name of a log of all reads and writes, for `longestPause`
 */
export function fioWrite(job: FioJob, folder: string, seed: number, log?: string): Promise<FioResult> {
  const writeRate = Math.ceil(job.sizeBytes / (job.writeMs / 1000));
  const pace = job.writeMs === 0 ? [] : [`--rate=${2 * writeRate},${writeRate}`];
  const logged = log === undefined ? [] : [`--write_lat_log=${log}`];
  return fio([...jobArguments(job, folder, seed), ...pace, ...logged]);
}

/** Reads and verifies what was written with this seed, at full speed. */
export function fioVerify(job: FioJob, folder: string, seed: number): Promise<FioResult> {
  return fio([...jobArguments(job, folder, seed), '--verify_only']);
}

function jobArguments(job: FioJob, folder: string, seed: number): string[] {
  const { name, order, blockBytes, sizeBytes, syncEvery } = job;
  return [
    `--name=${name}`,
    `--filename=${join(folder, name)}`,
    `--rw=${order}`,
    `--bs=${blockBytes}`,
    `--size=${sizeBytes}`,
    ...(syncEvery === 0 ? [] : [`--fsync=${syncEvery}`]),
    '--ioengine=psync',
    '--direct=0',
    '--fallocate=none',
    '--verify=crc32c',
    '--verify_fatal=1',
    '--verify_state_save=0',
    `--randseed=${seed}`,
    '--output-format=json',
  ];
}

async function fio(args: readonly string[]): Promise<FioResult> {
  const child = spawn('fio', args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: '/' });
  const watch = setTimeout(() => child.kill('SIGKILL'), HANGS_MS);
  const end = (): boolean => child.kill('SIGKILL');
  process.on('exit', end);
  try {
    const closed = once(child, 'close') as Promise<[number | null]>;
    const [out, complaint, [code]] = await Promise.all([text(child.stdout), text(child.stderr), closed]);
    return fioResult(out, complaint, code);
  } finally {
    clearTimeout(watch);
    process.off('exit', end);
  }
}

interface Latency {
  readonly lat_ns?: { readonly max?: number };
}

interface JobReport {
  readonly error?: number;
  readonly read?: Latency;
  readonly write?: Latency;
  readonly sync?: Latency;
}

/**
 * @param out the standard output with a JSON report; fio also prints some errors there
 * @param code null if a signal ended fio
 */
export function fioResult(out: string, complaint: string, code: number | null): FioResult {
  const begin = out.indexOf('{\n');
  if (begin === -1) return { error: `fio has ended with ${code}: ${complaint || out}`.trim(), stallMs: 0 };
  const { jobs } = JSON.parse(out.slice(begin, out.lastIndexOf('}') + 1)) as { readonly jobs: JobReport[] };
  const [job] = jobs;
  const longest = [job?.read, job?.write, job?.sync].map((latency) => latency?.lat_ns?.max ?? 0);
  const isRight = code === 0 && job?.error === 0;
  const said = `${out.slice(0, begin)} ${complaint}`.replaceAll(/\s+/g, ' ').trim();
  return {
    error: isRight ? null : `exit code ${code}, error ${job?.error}: ${said}`,
    stallMs: Math.max(...longest) / 1e6,
  };
}

/**
 * @param log as it was given to `fioWrite`
 * @returns the longest time without an end of a read or write; also a wait for a sync, which has no line of its own
 */
export function longestPause(log: string): FioPause {
  let lastMs = 0;
  let longest: FioPause = { atMs: 0, ms: 0 };
  for (const line of readFileSync(`${log}_lat.1.log`, 'utf8').trim().split('\n')) {
    const atMs = Number(line.split(',')[0]);
    if (atMs - lastMs > longest.ms) longest = { atMs: lastMs, ms: atMs - lastMs };
    lastMs = atMs;
  }
  return longest;
}

/**
 * Offsets in fio's header before each block: its times, and the checksum over them, differ between two runs of one
 * job.
 */
const HEADER_TIMES = [24, 32] as const;
const HEADER_CHECKSUM = [36, 40] as const;

/**
 * Compares a file with one that the same job wrote with the same seed elsewhere. `fio` itself accepts each whole block
 * at its offset, also one of an earlier seed.
 * @returns the offset of the first block that differs, or null
 */
export function blockDifference(job: FioJob, file: string, reference: string): number | null {
  const [left, right] = [openSync(file, 'r'), openSync(reference, 'r')];
  try {
    for (let offset = 0; offset < job.sizeBytes; offset += job.blockBytes) {
      if (!block(left, offset, job.blockBytes).equals(block(right, offset, job.blockBytes))) return offset;
    }
    return null;
  } finally {
    closeSync(left);
    closeSync(right);
  }
}

function block(fd: number, offset: number, sizeBytes: number): Buffer {
  const bytes = Buffer.alloc(sizeBytes);
  const length = readSync(fd, bytes, 0, sizeBytes, offset);
  bytes.fill(0, ...HEADER_TIMES);
  bytes.fill(0, ...HEADER_CHECKSUM);
  return bytes.subarray(0, length);
}
