/**
 * The catalog as the subject of the system simulation: the real commands over real tables in memory. Commands are
 * executed once however often they are asked for, because the tables remember them; the core knows nothing of that.
 */
import { crc32 } from 'node:zlib';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import type { Prng } from '../../base/prng.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { executeCommand } from '../../catalog/command.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { runQuery } from '../../catalog/queries.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { Operation, RequestId } from '../../replica/operation.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';
import { type FileEntry, sequenceViolation } from './linearizable.ts';
import type { Habits } from './system-client.ts';
import {
  type Contents,
  type History,
  type Logged,
  type Orderer,
  operationRequest,
  type Resolved,
  type Subject,
} from './system-contents.ts';

const VOLUME = 'v';
const ROOT = 1;
/** Few enough that commands meet each other. */
const NAMES = ['n1', 'n2', 'n3', 'n4'];
const SERVERS = ['a', 'b', 'c'];
/** All rows are compared every so many operations, and in between only what commands answered. */
const DUMP_EVERY = 16;

const LIST: Query = { kind: 'list', inode: ROOT, after: '', countMax: 100 };
/** What clients look at. */
const LOOKS: readonly string[] = [
  LIST,
  ...NAMES.map((name): Query => ({ kind: 'resolve', volume: VOLUME, path: `/${name}`, follow: false })),
].map((query) => JSON.stringify(query));

/** One replica's copy of the catalog. */
export class CatalogContents implements Contents {
  readonly log: Logged[];
  readonly seal = 'open';
  /** The last operation that changed something. */
  #last: { readonly counter: number; readonly seq: number };
  #answersDigest: number;
  #image: Buffer | null;
  #opened: CatalogDatabase | null = null;

  constructor(of?: CatalogContents) {
    this.log = of?.log.slice() ?? [];
    this.#last = of === undefined ? { counter: 0, seq: 0 } : of.#last;
    this.#answersDigest = of === undefined ? 0 : of.#answersDigest;
    this.#image = of === undefined ? null : (of.#image ?? of.db.serialize());
  }

  /** Opened when it is looked at: many copies never are. */
  get db(): CatalogDatabase {
    if (this.#opened !== null) return this.#opened;
    const image = this.#image;
    this.#image = null;
    const db = image === null ? new Database(':memory:') : new Database(image);
    if (image === null) {
      ensureSchema(db);
      const command: Command = { kind: 'volume-create', name: VOLUME, replicas: 3, objectBytes: 4096 };
      db.exec('BEGIN');
      executeCommand(db, { command, atNs: '0', replicas: [] });
      db.exec('COMMIT');
    }
    this.#opened = db;
    return db;
  }

  copy(): CatalogContents {
    return new CatalogContents(this);
  }

  apply(operation: Operation, epoch: Epoch, seq: number): void {
    this.log.push({ request: operationRequest(operation), operation, epoch });
    if (operation.view === undefined) this.execute(operation, epoch, seq);
  }

  /** @returns what the commands of the operation are answered */
  execute({ body }: Operation, epoch: Epoch, seq: number): string {
    const { db } = this;
    db.exec('BEGIN');
    const answer = answerText(executeBatch(db, seq, decodeBatch(body)));
    db.exec('COMMIT');
    this.#last = { counter: epoch.counter, seq };
    this.#answersDigest = crc32(answer, this.#answersDigest);
    return answer;
  }

  digest(): number {
    if (this.#last.seq % DUMP_EVERY !== 0) return this.#answersDigest;
    let digest = 0;
    for (const line of dumpCatalog(this.db)) digest = crc32(line, digest);
    return digest;
  }

  look(what: string): string {
    try {
      return JSON.stringify(runQuery(this.db, JSON.parse(what) as Query));
    } catch (error) {
      if (error instanceof ServiceError) return error.code;
      throw error;
    }
  }

  dependsOn(_what: string, counter: number): number {
    return this.#last.counter === counter ? this.#last.seq : 0;
  }
}

/** Executes at the primary, before anybody hears of it, and takes it back until a majority has the command. */
class CatalogOrderer implements Orderer {
  readonly #contents: CatalogContents;

  constructor(contents: CatalogContents) {
    this.#contents = contents;
  }

  resolve(request: RequestId, wish: Command, nowMs: number): Resolved {
    const { db, log } = this.#contents;
    db.exec('BEGIN');
    const { batch, outcomes } = executeRequests(db, log.length + 1, [{ ...request, command: wish }], {
      nowNs: BigInt(Math.floor(nowMs * 1e6)),
      placement: () => SERVERS as never,
    });
    db.exec('ROLLBACK');
    return { body: batch.length === 0 ? null : encodeBatch(batch), answer: answerText(outcomes) };
  }

  noteOrdered(): void {
    // One command at a time: the next is executed over what is applied.
  }
}

function answerText(outcomes: readonly Outcome[]): string {
  return JSON.stringify(outcomes);
}

export const CATALOG_SUBJECT: Subject = {
  appliesAtPrimary: 'last',
  keepsSessions: true,
  empty: () => new CatalogContents(),
  orderer: (contents) => new CatalogOrderer(contents as CatalogContents),
  judge,
};

/**
 * Everything that was answered must be what the committed commands give, executed one after the other: each
 * command at its place, and each look at some place between what had returned before it and what was called later.
 */
function judge({ entries, sequence, baseSeq }: History): string | null {
  const model = new CatalogContents();
  const answers = [''];
  const looks = () => LOOKS.map((what) => shownText(what, model.look(what)));
  const states: string[][] = [looks()];
  for (const [index, { operation, epoch }] of sequence.entries()) {
    const isView = operation.view !== undefined;
    answers.push(isView ? '' : model.execute(operation, epoch, index + 1));
    states.push(isView ? (states.at(-1) as string[]) : looks());
  }
  const history: FileEntry[] = [];
  const last = sequence[baseSeq - 1];
  if (last !== undefined) {
    history.push({ kind: 'change', request: last.request, callMs: -2, returnMs: -1, seq: baseSeq });
  }
  const survived = new Set(sequence.slice(0, baseSeq).map(({ request }) => request));
  for (const entry of entries) {
    const { callMs, returnMs } = entry;
    if (entry.kind === 'look') {
      history.push({ kind: 'read', content: shownText(entry.what, entry.shown), callMs, returnMs });
      continue;
    }
    const { request, seq, answer } = entry;
    if (seq !== null && answer !== answers[seq]) {
      return `${request} was answered ${answer}, and is ${answers[seq]} at ${seq}`;
    }
    if (survived.has(request)) continue;
    history.push({ kind: 'change', request, callMs, returnMs, seq });
  }
  const violation = sequenceViolation(
    sequence.map(({ request }) => request),
    states,
    history,
  );
  return violation === null ? null : `The catalog: ${violation}`;
}

function shownText(what: string, shown: string): string {
  return `${what} ${shown}`;
}

/** Clients that make, move and remove the same few names. */
export const CATALOG_HABITS: Habits = {
  what: (dice) => dice.pick(LOOKS),
  wish: (dice) => drawCommand(dice),
};

function drawCommand(dice: Prng): Command {
  const place = (name: string) => ({ volume: VOLUME, path: `/${name}` });
  const name = dice.pick(NAMES);
  const draw = dice.next();
  const owner = { uid: 0, gid: 0 };
  if (draw < 0.3) {
    return {
      kind: 'create-file',
      place: place(name),
      mode: 0o644,
      exclusive: dice.chance(0.7),
      ...owner,
    };
  }
  if (draw < 0.45) return { kind: 'make-directory', place: place(name), mode: 0o755, ...owner };
  if (draw < 0.65) return { kind: 'unlink', place: place(name) };
  if (draw < 0.75) return { kind: 'remove-directory', place: place(name) };
  if (draw < 0.92) {
    const mode = dice.pick(['replace', 'no-replace', 'exchange'] as const);
    return { kind: 'rename', from: place(name), to: place(dice.pick(NAMES)), mode };
  }
  return { kind: 'symlink', place: place(name), target: name, ...owner };
}
