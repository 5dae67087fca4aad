import { setTimeout as delay } from 'node:timers/promises';
import type { Goal, Report } from '../../lease/report.ts';
import { numberText, quantile, spreadText, summarize } from '../../lease/statistics.ts';
import { type PeerTraffic, trafficSince } from '../counters.ts';
import { fill } from '../fill.ts';
import type { BenchFile, ReplicaCluster } from '../replica-cluster.ts';
import type { Bench, Section } from '../section.ts';
import { SyncCounter } from '../syncs.ts';
import { WriteSession } from '../write-session.ts';

const MIB = 1024 * 1024;
const OBJECT_BYTES = 128 * 1024;
const WRITE = Buffer.alloc(4096, 0x3c);
const BACKUPS = 2;
const WRITERS = 32;
/** The servers' default timing. */
const TIMING = { leaseMs: 5_000, clockSkewMs: 250 };
/** To each backup and back. */
const MESSAGES_MAX = 2 * BACKUPS + 1;
/** Bytes besides the write's own, for both backups together. */
const OVERHEAD_BYTES_MAX = 1_024;
/** Servers without a sync for so long have made all their writes durable. */
const QUIET_MS = 1_000;
const SYNCS_END_MS_MAX = 60_000;
/** A write is 16 KiB in the log of each of three servers, and copying that from the log takes five syncs. */
const LOG_SYNCS_PER_WRITE = 0.02;
/** Without shared syncs, each synced write costs a sync at each server of a majority at least. */
const SYNCS_PER_WRITE_MAX = 1;

interface Round {
  readonly count: number;
  readonly spanMs: number;
  readonly sortedMs: readonly number[];
  readonly traffic: PeerTraffic;
  /** As the kernel counts them, with headers; null if that is not known. */
  readonly socketBytes: number | null;
}

interface SyncRound {
  readonly name: string;
  readonly writers: number;
  readonly synced: boolean;
  readonly writes: number;
  readonly syncs: number;
}

export const writes: Section = {
  title: 'What an acknowledged overwrite of 4 KiB costs between servers, and on their disks',
  run,
};

async function run(bench: Bench): Promise<Report> {
  const servers = await bench.servers(TIMING);
  try {
    const fileBytes = (bench.quick ? 4 : 64) * MIB;
    const file = await servers.createFile('overwritten', OBJECT_BYTES);
    bench.progress(`a file of ${fileBytes / MIB} MiB`);
    await fill(servers, file, { count: fileBytes / MIB, strideBytes: MIB, bytes: Buffer.alloc(MIB, 1) });
    await servers.cluster.current(file.path);
    const writer = new Overwriter(servers, file, fileBytes, await servers.cluster.primaryOf(file.path));
    const rounds: { writers: number; measured: Round[] }[] = [];
    for (const writers of [1, WRITERS]) {
      bench.progress(`${writers} at a time`);
      const measured: Round[] = [];
      await writer.round(writers, bench.quick ? 100 : 2_000);
      for (let turn = 0; turn < bench.runs; turn++) {
        measured.push(await writer.round(writers, bench.quick ? 100 : 3_000));
      }
      rounds.push({ writers, measured });
    }
    bench.progress('nothing at all, to know what servers say without being asked');
    const idleMs = bench.quick ? 500 : 5_000;
    const before = await servers.traffic();
    await delay(idleMs);
    const idle = trafficSince(await servers.traffic(), before);
    const obstacle = SyncCounter.obstacle();
    const syncs = obstacle === null ? await countSyncs(bench, servers, writer) : [];
    return report(rounds, { idle, idleMs }, syncs, obstacle);
  } finally {
    await servers.stop('SIGTERM');
  }
}

/** Clients that write at random offsets of a file, each one write after the other. */
class Overwriter {
  readonly #servers: ReplicaCluster;
  readonly #file: BenchFile;
  readonly #fileBytes: number;
  readonly #primary: string;

  constructor(servers: ReplicaCluster, file: BenchFile, fileBytes: number, primary: string) {
    this.#servers = servers;
    this.#file = file;
    this.#fileBytes = fileBytes;
    this.#primary = primary;
  }

  async round(writers: number, count: number, synced = false): Promise<Round> {
    const pool = this.#servers.pool(this.#primary);
    const flush = { method: 'POST', path: `/v1/data/${this.#file.file}/flush` } as const;
    const latenciesMs: number[] = [];
    const sessions = await Promise.all(
      Array.from({ length: writers }, () => WriteSession.begin(this.#servers, this.#file.file)),
    );
    // The first requests of a session are no part of a write.
    const before = await this.#servers.traffic();
    const socketsBefore = this.#servers.socketBytes();
    const beganMs = performance.now();
    let left = count;
    await Promise.all(
      sessions.map(async (session) => {
        for (; left > 0; ) {
          left -= 1;
          const offset = Math.floor(Math.random() * (this.#fileBytes / WRITE.length)) * WRITE.length;
          const sentMs = performance.now();
          await session.write(pool, offset, WRITE);
          if (synced) {
            const response = await pool.request(flush);
            const text = await response.body.text();
            if (response.statusCode !== 200) throw new Error(`A flush was refused: ${text}`);
          }
          latenciesMs.push(performance.now() - sentMs);
        }
      }),
    );
    const spanMs = performance.now() - beganMs;
    const socketsAfter = this.#servers.socketBytes();
    return {
      count,
      spanMs,
      sortedMs: latenciesMs.toSorted((a, b) => a - b),
      traffic: trafficSince(await this.#servers.traffic(), before),
      socketBytes: socketsBefore === null || socketsAfter === null ? null : socketsAfter - socketsBefore,
    };
  }
}

async function countSyncs(
  bench: Bench,
  servers: ReplicaCluster,
  writer: Overwriter,
): Promise<readonly SyncRound[]> {
  const pids = servers.ids.map((id) => servers.cluster.pid(id));
  const rounds: SyncRound[] = [];
  for (const { name, writers, synced, count } of [
    { name: 'not synced, one at a time', writers: 1, synced: false, count: bench.quick ? 50 : 1_000 },
    {
      name: `not synced, ${WRITERS} at a time`,
      writers: WRITERS,
      synced: false,
      count: bench.quick ? 64 : 3_000,
    },
    { name: 'synced, one at a time', writers: 1, synced: true, count: bench.quick ? 20 : 200 },
    { name: `synced, ${WRITERS} at a time`, writers: WRITERS, synced: true, count: bench.quick ? 64 : 1_600 },
  ]) {
    bench.progress(`syncs: ${name}`);
    await writer.round(1, 1, true);
    await syncsEnd(pids);
    const counter = await SyncCounter.attach(pids);
    await writer.round(writers, count, synced);
    rounds.push({ name, writers, synced, writes: count, syncs: await counter.detach() });
  }
  return rounds;
}

/**
 * Resolves once earlier writes have been made durable in the background, so that they are not counted in the next
 * round.
 */
async function syncsEnd(pids: readonly number[]): Promise<void> {
  const deadlineMs = performance.now() + SYNCS_END_MS_MAX;
  while (performance.now() < deadlineMs) {
    const counter = await SyncCounter.attach(pids);
    await delay(QUIET_MS);
    if ((await counter.detach()) === 0) return;
  }
  throw new Error(`Servers without requests sync for ${SYNCS_END_MS_MAX} ms`);
}

function report(
  rounds: readonly { writers: number; measured: readonly Round[] }[],
  { idle, idleMs }: { idle: PeerTraffic; idleMs: number },
  syncs: readonly SyncRound[],
  obstacle: string | null,
): Report {
  const perWrite = (measured: readonly Round[], value: (round: Round) => number) =>
    summarize(measured.map((round) => value(round) / round.count));
  const beyondIdle = (value: 'messages' | 'bytes') => (round: Round) =>
    round.traffic[value] - (idle[value] * round.spanMs) / idleMs;
  const goals: Goal[] = [];
  const rows: string[][] = [];
  for (const { writers, measured } of rounds) {
    const name = writers === 1 ? 'one at a time' : `${writers} at a time`;
    const messages = perWrite(measured, beyondIdle('messages'));
    const bytes = perWrite(measured, beyondIdle('bytes'));
    const counted = measured.filter(({ socketBytes }) => socketBytes !== null);
    const sockets = counted.length === 0 ? null : perWrite(counted, ({ socketBytes }) => socketBytes ?? 0);
    const latencies = (share: number) => summarize(measured.map(({ sortedMs }) => quantile(sortedMs, share)));
    rows.push([
      name,
      spreadText(messages, 1),
      spreadText(bytes),
      sockets === null ? '–' : spreadText(sockets),
      numberText(bytes.median / (BACKUPS * WRITE.length), 3),
      spreadText(latencies(0.5), 2),
      spreadText(latencies(0.99), 2),
    ]);
    goals.push(
      {
        what: `${name}: messages for a write, there and back included`,
        wanted: `at most ${MESSAGES_MAX}`,
        measured: spreadText(messages, 1),
        met: messages.median <= MESSAGES_MAX,
      },
      {
        what: `${name}: bytes for a write beside the ${BACKUPS} × 4 KiB that backups need`,
        wanted: `at most ${numberText(OVERHEAD_BYTES_MAX)}`,
        measured: numberText(bytes.median - BACKUPS * WRITE.length),
        met: bytes.median - BACKUPS * WRITE.length <= OVERHEAD_BYTES_MAX,
      },
    );
  }
  const notes = [
    'Servers count messages and bytes, less their traffic when idle ' +
      `(${numberText((idle.messages * 1000) / idleMs)} messages and ${numberText((idle.bytes * 1000) / idleMs)} bytes a second). ` +
      'The kernel counts bytes on sockets, with idle traffic and all headers except those of packets.',
  ];
  if (obstacle !== null) notes.push(`Syncs were not counted: ${obstacle}.`);
  for (const { name, writes: count, syncs: calls } of syncs) {
    notes.push(
      `Syncs of the three servers together, ${name}: ${numberText(calls)} for ${numberText(count)} writes, ${numberText(calls / count, 3)} for each.`,
    );
  }
  for (const { name, writers, synced, writes: count, syncs: calls } of syncs) {
    if (!synced) {
      goals.push({
        what: `${name}: syncs for a write`,
        wanted: `none but for the index's log, which is copied back every 16 MiB: at most ${LOG_SYNCS_PER_WRITE}`,
        measured: numberText(calls / count, 3),
        met: calls / count <= LOG_SYNCS_PER_WRITE,
      });
    } else if (writers > 1) {
      goals.push({
        what: `${name}: syncs for a write, of all servers together`,
        wanted: `less than ${SYNCS_PER_WRITE_MAX}`,
        measured: numberText(calls / count, 3),
        met: calls / count < SYNCS_PER_WRITE_MAX,
      });
    }
  }
  return {
    table: {
      columns: ['overwrites', 'messages', 'bytes', 'bytes on sockets', 'of 2 × 4 KiB', 'p50 ms', 'p99 ms'],
      rows,
    },
    goals,
    notes,
    figures: [],
    data: { rounds, idle, idleMs, syncs },
  };
}
