import { constants } from 'node:fs';
import { ServiceError } from '../../../../base/errors.ts';
import type { Prng } from '../../../../base/prng.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import { KernelError } from '../../kernel/kernel-error.ts';
import type { Process } from '../../kernel/process.ts';
import { OneWriterFile, type OneWriterRun } from '../judges/one-writer.ts';
import type { MountProgram } from '../program.ts';
import type { Run } from '../run.ts';
import { type SimulatedMachine, TTL_MS } from '../simulated-machine.ts';
import type { Workload } from '../workload.ts';
import { perRun, textOf } from './parts.ts';

const READ_BYTES = 65_536;
/** The probability that a read is of a recent change. */
const RECENT = 0.7;
const RECENT_FILES = 8;
const FILES_AT_END_MAX = 60;
/** How much later than its time an answer may be used: for the rates of two clocks, and the way of the answer. */
const SLACK_MARGIN_NS = 50e6;

/** A file that one program changes, and its path. */
export interface OwnFile {
  readonly volume: string;
  readonly path: string;
  readonly judge: OneWriterFile;
  /** The mount of the program that changes it; null for a client of the library. */
  readonly machine: SimulatedMachine | null;
}

/** The program that creates a file: on a mount, or with the client library. */
interface Maker {
  readonly run: Run;
  readonly volume: string;
  readonly machine?: SimulatedMachine;
}

/** The files of a run that one program changes each, and all read. */
class OneWriterFiles {
  readonly #files: OwnFile[] = [];
  #areRead = false;

  add({ run, volume, machine }: Maker, path: string): OwnFile {
    const file = {
      volume,
      path,
      judge: new OneWriterFile(`${volume}:${path}`, judged(run)),
      machine: machine ?? null,
    };
    this.#files.push(file);
    return file;
  }

  /**
   * A program has closed or synced its file, and one on another mount reads it at once, as if the first one had
   * notified it.
   */
  readElsewhere({ draw, machine, run, volume }: MountProgram, { path, judge }: OwnFile): void {
    const others = run.cluster.machines.filter(
      (other) => other !== machine && other.volume === volume && other.isMounted && !other.kernel.hasEnded,
    );
    if (others.length === 0) return;
    const other = draw.pick(others);
    run.cluster.time.after(0, other.kernel, () => {
      const process = other.model.process();
      const calledNs = run.nowNs();
      const read = answered(() => contentsOf(process, path, draw), ['ENOENT']).then((contents) => {
        if (contents === undefined) return;
        judge.read(`${other.name}, at once,`, calledNs, contents);
        run.count('read at once elsewhere');
      });
      read.then(
        () => process.exit(),
        (error: Error) => run.cluster.time.fail(error),
      );
    });
  }

  /** Reads a file of this program or of another one. */
  async readOne(program: MountProgram): Promise<void> {
    const { draw, process, run, volume: mounted } = program;
    const there = this.#files.filter(({ volume }) => volume === mounted);
    if (there.length === 0) return;
    const some = draw.chance(RECENT) ? there.slice(-RECENT_FILES) : there;
    const own = draw.pick(some);
    const { path, judge } = own;
    const calledNs = run.nowNs();
    if (draw.chance(0.25)) {
      const isThere = await answered(() => process.stat(path), ['ENOENT']);
      if (isThere !== undefined)
        judge.presence(program.name, calledNs, isThere !== null, slackNs(program, own));
      return;
    }
    const contents = await answered(() => contentsOf(process, path, draw), ['ENOENT']);
    if (contents === undefined) return;
    run.completed++;
    const { machine } = program;
    judge.read(program.name, calledNs, contents, 0, () => own.machine === machine && machine.daemon.hasEnded);
    run.count(contents === null ? 'read of nothing' : 'read of contents');
  }

  /** Reads the newest files after all programs have ended: they must be as their programs know them. */
  async readAll(run: Run, client: ClusterClient): Promise<void> {
    if (this.#areRead) return;
    this.#areRead = true;
    for (const { volume, path, judge } of this.#files.slice(-FILES_AT_END_MAX)) {
      const calledNs = run.nowNs();
      judge.read('a client, at the end,', calledNs, await storedContents(client, volume, path));
    }
  }
}

async function storedContents(client: ClusterClient, volume: string, path: string): Promise<string | null> {
  try {
    // A directory of the path may have become a volume.
    const end = await client.locate({ volume, path }, 'target');
    const attributes = await client.resolve(end.volume, end.path);
    return await textOf(client.openFile(attributes.inode, attributes), 0, READ_BYTES);
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

export const readAllFiles: NonNullable<Workload['settle']> = (run, client) =>
  oneWriterFilesOf(run).readAll(run, client);

export const oneWriterFilesOf = perRun(() => new OneWriterFiles());

function judged(run: Run): OneWriterRun {
  return {
    nowNs: () => run.nowNs(),
    violation: (text) => run.violation(text),
    lossesNs: run.cluster.lossesNs,
    synced: () => run.cluster.synced(),
  };
}

/**
 * @param file of a program on the same mount: its changes are known there at once
 * @returns how outdated names and attributes may be that were not opened
 */
export function slackNs({ machine }: MountProgram, file?: OwnFile): number {
  if (file?.machine === machine) return 0;
  return machine.cache === 'ttl' ? TTL_MS * 1e6 + SLACK_MARGIN_NS : 0;
}

/** @returns the answer; null if the error is one of `nothing`; undefined for other errors */
export async function answered<Value>(
  ask: () => Promise<Value>,
  nothing: readonly string[] = [],
): Promise<Value | null | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return nothing.includes(error.errno) ? null : undefined;
  }
}

/** @returns whether a call succeeds; errors of the simulation itself are thrown */
export async function succeeds(ask: () => Promise<unknown>): Promise<boolean> {
  return (await answered(() => ask().then(() => true))) === true;
}

/** Opens a file, reads all of it, closes it. */
async function contentsOf(process: Process, path: string, draw: Prng): Promise<string> {
  const file = await process.open(path, constants.O_RDONLY);
  try {
    if (draw.chance(0.15)) return await mappedContents(process, file);
    const parts: Buffer[] = [];
    const pieceBytes = draw.chance(0.7) ? READ_BYTES : 1_000;
    for (;;) {
      const part = await process.read(file, pieceBytes);
      if (part.length === 0) return Buffer.concat(parts).toString('latin1');
      parts.push(part);
    }
  } finally {
    await process.close(file);
  }
}

/** The bytes of a file in its pages. */
async function mappedContents(process: Process, file: number): Promise<string> {
  const { sizeBytes } = await process.fstat(file);
  if (sizeBytes === 0) return '';
  const mapping = await process.mmap(file, { writable: false });
  try {
    return (await mapping.read(0, sizeBytes)).toString('latin1');
  } finally {
    await mapping.unmap();
  }
}
