import type { Prng } from '../../base/prng.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import {
  type FileState,
  HEADER_EPOCH,
  HEADER_PRIMARY,
  HEADER_SERVED,
  type WriteResult,
} from '../../wire/http-api.ts';
import type { Operation, OperationKind, Served, Status } from '../history/operation.ts';
import { OBJECT_BYTES, RECORD_BYTES } from './keys.ts';
import { nowNs, type Recorder } from './recorder.ts';
import { type Answer, type Outcome, type Request, type Requests, Session } from './requests.ts';

export const VOLUME = 'nemesis';
const ORPHANS_AT_ONCE = 16;
const TORN = 'torn: ';

type Fact = { readonly [Kind in OperationKind]: Extract<Operation, { op: Kind }>['output'] };

/** One client: makes one operation at a time, and records its outcome. */
export class NemesisClient {
  readonly name: string;
  readonly prng: Prng;
  readonly #requests: Requests;
  readonly #recorder: Recorder;
  readonly #readMs: number;
  readonly #sessions = new Map<number, Session>();
  readonly #catalogSession = new Session();
  readonly #orphans: number[] = [];
  #values = 0;

  /** @param readMs how long a read waits for its server */
  constructor(name: string, prng: Prng, requests: Requests, recorder: Recorder, readMs: number) {
    this.name = name;
    this.#readMs = readMs;
    this.prng = prng;
    this.#requests = requests;
    this.#recorder = recorder;
  }

  /** @returns a value that no other operation writes: letters and digits, fewer than a record has */
  freshValue(): string {
    return `${this.name}.${++this.#values}`;
  }

  // Objects of a file, as registers.

  readObject(server: string, file: number, index: number): Promise<boolean> {
    const path = `/v1/data/${file}?offset=${index * OBJECT_BYTES}&length=${OBJECT_BYTES}`;
    return this.#read('read', objectKey(file, index), null, server, { method: 'GET', path }, (answer) => {
      this.#heard(file, answer);
      return objectValue(answer.bytes);
    });
  }

  async writeObject(file: number, index: number): Promise<Status> {
    const value = this.freshValue();
    const path = `/v1/data/${file}?offset=${index * OBJECT_BYTES}&${this.#query(file)}`;
    const request = { method: 'PUT', path, body: objectBytes(value) } as const;
    return this.#change('write', objectKey(file, index), value, request, (answer) => {
      this.#heardState(file, answer);
      return null;
    });
  }

  // Lists: files of records to which clients only append.

  readList(server: string, file: number): Promise<boolean> {
    const path = `/v1/data/${file}?offset=0&length=${1024 * RECORD_BYTES}`;
    return this.#read('read', `list/${file}`, null, server, { method: 'GET', path }, (answer) => {
      this.#heard(file, answer);
      return listValues(answer.bytes);
    });
  }

  append(file: number): Promise<Status> {
    const value = this.freshValue();
    const path = `/v1/data/${file}?offset=append&${this.#query(file)}`;
    const body = Buffer.from(value.padEnd(RECORD_BYTES - 1, ' ').concat('\n'), 'latin1');
    return this.#change('append', `list/${file}`, value, { method: 'PUT', path, body }, (answer) => {
      const { offset } = this.#heardState(file, answer) as WriteResult;
      // A list has no offset within a record.
      return offset % RECORD_BYTES === 0 ? offset / RECORD_BYTES : Number.MAX_SAFE_INTEGER;
    });
  }

  // Files of bytes.

  pread(server: string, file: number, off: number, len: number): Promise<boolean> {
    const path = `/v1/data/${file}?offset=${off}&length=${len}`;
    return this.#read('pread', `file/${file}`, { off, len }, server, { method: 'GET', path }, (answer) => {
      this.#heard(file, answer);
      return answer.bytes.toString('latin1');
    });
  }

  size(server: string, file: number): Promise<boolean> {
    const request = { method: 'GET', path: `/v1/data/${file}/state` } as const;
    return this.#read('size', `file/${file}`, null, server, request, (answer) => {
      this.#heard(file, answer);
      return (JSON.parse(answer.bytes.toString('utf8')) as FileState).sizeBytes;
    });
  }

  pwrite(file: number, off: number): Promise<Status> {
    const data = this.freshValue();
    const path = `/v1/data/${file}?offset=${off}&${this.#query(file)}`;
    const request = { method: 'PUT', path, body: Buffer.from(data, 'latin1') } as const;
    return this.#change('pwrite', `file/${file}`, { off, data }, request, (answer) => {
      return this.#heardState(file, answer).sizeBytes;
    });
  }

  fappend(file: number): Promise<Status> {
    const data = this.freshValue();
    const path = `/v1/data/${file}?offset=append&${this.#query(file)}`;
    const request = { method: 'PUT', path, body: Buffer.from(data, 'latin1') } as const;
    return this.#change('fappend', `file/${file}`, { data }, request, (answer) => {
      return (this.#heardState(file, answer) as WriteResult).offset;
    });
  }

  truncate(file: number, size: number): Promise<Status> {
    const path = `/v1/data/${file}/truncate?size=${size}&${this.#query(file)}`;
    return this.#change('truncate', `file/${file}`, { size }, { method: 'POST', path }, (answer) => {
      return this.#heardState(file, answer).sizeBytes;
    });
  }

  // Entries of the catalog: the value is the file that has the name.

  /** @returns the file, null for none, or undefined if there was no answer */
  async readEntry(server: string, entry: number): Promise<string | null | undefined> {
    const query = { kind: 'resolve', volume: VOLUME, path: `/${entryName(entry)}`, follow: false };
    const request = { method: 'POST', path: '/v1/catalog/queries', body: JSON.stringify({ query }) } as const;
    let found: string | null | undefined;
    await this.#read('read', `entry/${entry}`, null, server, request, (answer) => {
      if (answer.code === 'not-found') found = null;
      else found = String((bodyOf(answer) as { attributes: Attributes }).attributes.inode);
      return found;
    });
    return found;
  }

  async writeEntry(entry: number): Promise<Status> {
    const inode = await this.#orphan();
    if (inode === null) return 'fail';
    const request = this.#command({ ...replace(entry, inode), expect: { kind: 'anything' } });
    return this.#change('write', `entry/${entry}`, String(inode), request, (answer) => {
      return { former: textOrNull((bodyOf(answer) as { replaced: number | null }).replaced) };
    });
  }

  /** @param expected the file that is expected to have the name, or null for none */
  async casEntry(entry: number, expected: string | null): Promise<Status> {
    const inode = await this.#orphan();
    if (inode === null) return 'fail';
    const expect = expected === null ? { kind: 'nothing' } : { kind: 'inode', inode: Number(expected) };
    const request = this.#command({ ...replace(entry, inode), expect });
    const input = { expect: expected, value: String(inode) };
    return this.#change('cas', `entry/${entry}`, input, request, ({ code }) => code === null, [
      'precondition-failed',
    ]);
  }

  async deleteEntry(entry: number): Promise<Status> {
    const request = this.#command({ kind: 'unlink', place: placeOf(entry) });
    return this.#change(
      'delete',
      `entry/${entry}`,
      null,
      request,
      (answer) => {
        if (answer.code === 'not-found') return { former: null };
        return { former: String((bodyOf(answer) as { inode: number }).inode) };
      },
      ['not-found'],
    );
  }

  /**
   * Creates a file with a name of its own. @returns its number, or null if the creation is not known to have succeeded
   */
  async createFile(): Promise<number | null> {
    const owner = { mode: 0o644, uid: 0, gid: 0 };
    const place = { volume: VOLUME, path: `/file-${this.freshValue()}` };
    return inodeOf(
      await this.#requests.change(this.#command({ kind: 'create-file', place, ...owner, exclusive: true })),
    );
  }

  async createVolume(replicas: number): Promise<void> {
    const command = { kind: 'volume-create', name: VOLUME, replicas, objectBytes: OBJECT_BYTES };
    const { status } = await this.#requests.change(this.#command(command), [], 60_000);
    if (status !== 'ok') throw new Error('The servers do not make a volume');
  }

  /**
   * Creates a file without a name. It is settled at once, so that look-ups of its name do not query its primary for a
   * size: each file would need a primary first.
   */
  async #orphan(): Promise<number | null> {
    const ready = this.#orphans.pop();
    if (ready !== undefined) return ready;
    const command = { kind: 'create-orphan', volume: VOLUME, mode: 0o644, uid: 0, gid: 0 };
    for (let count = 0; count < ORPHANS_AT_ONCE; count++) {
      const inode = inodeOf(await this.#requests.change(this.#command(command)));
      if (inode === null) break;
      this.#orphans.push(inode);
    }
    const files = this.#orphans.map((inode) => ({
      inode,
      sizeBytes: 0,
      modifiedNs: '0',
      contents: { epoch: 0, seq: 0 },
    }));
    await this.#requests.change(this.#command({ kind: 'settle', files }));
    return this.#orphans.pop() ?? null;
  }

  #command(command: object): Request {
    const { session } = this.#catalogSession;
    const body = JSON.stringify({ session, number: this.#catalogSession.next(), command });
    return { method: 'POST', path: '/v1/catalog/commands', body };
  }

  #query(file: number): string {
    let session = this.#sessions.get(file);
    if (session === undefined) {
      session = new Session();
      this.#sessions.set(file, session);
    }
    const number = session.next();
    // Requests are made one after the other: all earlier ones were answered or abandoned.
    return `session=${session.session}&number=${number}&since=0&answered=${number - 1}`;
  }

  async #read<Kind extends 'read' | 'pread' | 'size'>(
    op: Kind,
    key: string,
    input: Extract<Operation, { op: Kind }>['input'],
    server: string,
    request: Request,
    output: (answer: Answer) => Fact[Kind],
  ): Promise<boolean> {
    const call = nowNs();
    const attempt = await this.#requests.ask(server, request, this.#readMs);
    const end = nowNs();
    const common = { client: this.name, op, key, call, input, server };
    // A name may be removed, a file may not.
    const facts = key.startsWith('entry/') ? [null, 'not-found'] : [null];
    if (attempt.kind === 'answer' && facts.includes(attempt.code)) {
      const how = servedOf(attempt);
      if (HEADER_SERVED in attempt.headers) this.#recorder.tellsServed = true;
      this.#record({ ...common, return: end, status: 'ok', output: output(attempt), how });
      return true;
    }
    this.#record({ ...common, return: null, status: 'unknown', output: null });
    return false;
  }

  async #change<Kind extends OperationKind>(
    op: Kind,
    key: string,
    input: Extract<Operation, { op: Kind }>['input'],
    request: Request,
    output: (answer: Answer) => Fact[Kind],
    facts: readonly string[] = [],
  ): Promise<Status> {
    const call = nowNs();
    const { status, answer } = await this.#requests.change(request, facts);
    const end = nowNs();
    const common = { client: this.name, op, key, call, status, input };
    if (answer === null) this.#record({ ...common, return: null, output: null });
    else this.#record({ ...common, return: end, output: output(answer) });
    return status;
  }

  /** Both callers above pass an input and an output of one kind, which the compiler cannot see. */
  #record(fact: object): void {
    this.#recorder.record(fact as Operation);
  }

  #heard(file: number, { headers }: Answer): void {
    const primary = headers[HEADER_PRIMARY];
    const epoch = Number(headers[HEADER_EPOCH]);
    if (typeof primary === 'string' && epoch > 0) this.#recorder.answeredBy(String(file), { primary, epoch });
  }

  #heardState(file: number, answer: Answer): FileState {
    const state = bodyOf(answer) as FileState;
    this.#recorder.answeredBy(String(file), state);
    return state;
  }
}

export function objectKey(file: number, index: number): string {
  return `object/${file}.${index}`;
}

function entryName(entry: number): string {
  return `entry-${entry}`;
}

function placeOf(entry: number): { readonly volume: string; readonly path: string } {
  return { volume: VOLUME, path: `/${entryName(entry)}` };
}

function replace(entry: number, inode: number): object {
  return { kind: 'replace', place: placeOf(entry), inode };
}

function bodyOf(answer: Answer): unknown {
  return JSON.parse(answer.bytes.toString('utf8'));
}

function inodeOf({ status, answer }: Outcome): number | null {
  if (status !== 'ok' || answer === null || answer.code !== null) return null;
  return (bodyOf(answer) as { attributes: Attributes }).attributes.inode;
}

function textOrNull(inode: number | null): string | null {
  return inode === null ? null : String(inode);
}

function servedOf({ server, headers }: Answer): Served {
  const said = headers[HEADER_SERVED];
  if (said === 'local') return 'local';
  if (said === 'primary' || headers[HEADER_PRIMARY] === server) return 'primary';
  return 'redirected';
}

/** The value repeated, so that a read of parts of two values is noticed. */
function objectBytes(value: string): Buffer {
  return Buffer.alloc(OBJECT_BYTES, `${value} `, 'latin1');
}

function objectValue(bytes: Buffer): string | null {
  if (bytes.every((byte) => byte === 0)) return null;
  const [value = ''] = bytes.toString('latin1').split(' ', 1);
  return bytes.equals(objectBytes(value)) ? value : `${TORN}${value}`;
}

function listValues(bytes: Buffer): string[] {
  const values: string[] = [];
  for (let at = 0; at < bytes.length; at += RECORD_BYTES) {
    const record = bytes.toString('latin1', at, at + RECORD_BYTES);
    const isWhole = record.length === RECORD_BYTES && record.endsWith('\n');
    values.push(isWhole ? record.slice(0, -1).trimEnd() : `${TORN}${JSON.stringify(record)}`);
  }
  return values;
}
