import assert from 'node:assert/strict';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import type { FetchedState } from '../../server/drivers/subject.ts';
import { FileSubject } from '../../server/file/file-subject.ts';
import { ObjectDigests } from '../../server/storage/object-digests.ts';
import type { FileStore } from '../../server/storage/store.ts';
import { encodeFileOperation, type FileOperation, WRITE_BYTES_MAX } from '../../wire/file-operation.ts';
import { describeFile } from '../conformance/description.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';

export const FILE = 7 as FileId;
const VIEW: View = { number: 1, members: ['a', 'b', 'c'] as ServerId[] };
const NOTHING = new Uint8Array(0);

export function epochOf(counter: number, server = 'a'): Epoch {
  return { counter, server: server as ServerId, incarnation: 1 as Incarnation };
}

/** Waits for one tick of the event loop. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A replica on its own: operations are applied to it as a primary would have them applied. */
export class LoneReplica<Store extends FileStore = MemoryStore> {
  readonly store: Store;
  readonly subject: FileSubject;

  constructor(store: Store) {
    this.store = store;
    this.subject = new FileSubject(patientWorld, FILE, store);
  }

  /** An empty one, with epoch `counter` installed. */
  static async make(objectBytes: number, counter = 1): Promise<LoneReplica> {
    const made = new LoneReplica(new MemoryStore());
    made.store.create(FILE, VIEW, objectBytes);
    await made.begin(epochOf(counter));
    return made;
  }

  get seq(): number {
    return this.subject.record().seq;
  }

  async begin(epoch: Epoch): Promise<void> {
    await this.subject.promise(epoch);
    await this.subject.install(epoch, this.seq, NOTHING, false);
  }

  async apply(operation: FileOperation): Promise<void> {
    const { installed, seq } = this.subject.record();
    const body = encodeFileOperation(operation);
    await this.subject.apply(installed, seq + 1, { request: null, result: NOTHING, body }, NOTHING);
  }

  write(offset: number, bytes: Uint8Array): Promise<void> {
    return this.apply({ kind: 'write', offset, bytes, modifiedNs: BigInt(this.seq) });
  }

  /** Writes `count` bytes from the beginning on. */
  async fill(count: number, value: number): Promise<void> {
    for (let at = 0; at < count; at += WRITE_BYTES_MAX) {
      await this.write(at, new Uint8Array(Math.min(WRITE_BYTES_MAX, count - at)).fill(value));
    }
  }

  punch(from: number, to: number): Promise<void> {
    return this.apply({ kind: 'punch', from, to, grows: false, modifiedNs: BigInt(this.seq) });
  }

  truncate(sizeBytes: number): Promise<void> {
    return this.apply({ kind: 'truncate', sizeBytes, modifiedNs: BigInt(this.seq) });
  }
}

type Serve = () => Promise<Uint8Array>;

/** The traffic between servers, counted. `fault` may answer in the place of a server, or not at all. */
export class CountedWire {
  messages = 0;
  bytes = 0;
  readonly asked: string[] = [];
  readonly #replicas: ReadonlyMap<string, LoneReplica<FileStore>>;
  fault: (server: string, method: string, serve: Serve) => Promise<Uint8Array> = (_server, _method, serve) =>
    serve();

  constructor(replicas: Readonly<Record<string, LoneReplica<FileStore>>>) {
    this.#replicas = new Map(Object.entries(replicas));
  }

  async ask(server: string, method: string, payload: Uint8Array): Promise<Uint8Array> {
    this.messages++;
    this.bytes += payload.length;
    this.asked.push(`${method}@${server}`);
    await turn();
    const replica = this.#replicas.get(server) as LoneReplica<FileStore>;
    const answer = await this.fault(server, method, () => replica.subject.serve(method, payload));
    this.bytes += answer.length;
    return answer;
  }

  /** Fetches and installs the state of `from`; objects are fetched from `others` as well. */
  async bring(
    target: LoneReplica<FileStore>,
    from: string,
    others: readonly string[] = [],
    help: Parameters<FileSubject['fetch']>[1] = {},
  ): Promise<FetchedState> {
    const fetched = await target.subject.fetch((method, payload) => this.ask(from, method, payload), {
      others: others as readonly ServerId[],
      callOther: (server, method, payload) => this.ask(server, method, payload),
      ...help,
    });
    const { epoch, seq } = fetched.position;
    await target.subject.promise(epoch);
    await target.subject.install(epoch, seq, fetched.sessions, true);
    return fetched;
  }
}

/** Checks that the replica is in this state, with all bytes, and that its digests are right. */
export async function assertSame(
  target: LoneReplica<FileStore>,
  source: LoneReplica<FileStore>,
  theirs = describeFile(source.store, FILE),
): Promise<void> {
  const mine = describeFile(target.store, FILE);
  assert.deepEqual(mine.attributes, theirs.attributes);
  assert.deepEqual(mine.objects, theirs.objects);
  assert.equal(mine.record.seq, theirs.record.seq);
  assert.deepEqual(mine.record.installed, theirs.record.installed);
  assert.deepEqual(mine.record.view, theirs.record.view);
  for (const { index, versionEpoch, versionSeq } of mine.objects) {
    const bytes = await target.store.readObject(FILE, index, versionEpoch, versionSeq);
    assert.ok(bytes !== null, 'Every described object is here');
  }
  const expected = new ObjectDigests();
  for (const entry of mine.objects) expected.replace(null, entry);
  assert.deepEqual((await target.store.digests(FILE)).total, expected.total);
}

/** Counts the objects in which the two differ. */
export function differing(a: LoneReplica<FileStore>, b: LoneReplica<FileStore>): number {
  const keys = (replica: LoneReplica<FileStore>): Map<number, string> =>
    new Map(describeFile(replica.store, FILE).objects.map((entry) => [entry.index, JSON.stringify(entry)]));
  const [ofA, ofB] = [keys(a), keys(b)];
  return [...new Set([...ofA.keys(), ...ofB.keys()])].filter((index) => ofA.get(index) !== ofB.get(index))
    .length;
}
