/**
 * Reads and flushes at one server of a replica group: through its replica or, without a primary, by a majority at one
 * position (`replica/agreement.ts`).
 */
import type { ServerId } from '../../base/ids.ts';
import { agrees, hasQuorum, positionForQuorumRead } from '../../replica/agreement.ts';
import type { Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { dependsOn, valueIn } from './replica-disk.ts';
import type { ReplicaGroup } from './replica-group.ts';
import type { GroupMessage, Reply } from './replica-messages.ts';
import type { ReplicaServer } from './replica-server.ts';

/** A read that waits longer is sent to another server. */
const READ_WAIT_MS = 80;

interface WaitingRead {
  readonly key: string;
  readonly reply: Reply;
  /** It waited for an operation to be committed. */
  dirty: boolean;
  isOver: boolean;
}

/** A pending quorum read. */
interface QuorumRead {
  readonly position: Position;
  readonly view: View;
  readonly agreeing: Set<ServerId>;
  /** Called in the tick in which the majority is complete. */
  agreed(): void;
}

type Question = Extract<GroupMessage, { readonly kind: 'agree' | 'agreed' }>;

export class ReplicaReads {
  readonly #group: ReplicaGroup;
  readonly #server: ReplicaServer;
  readonly #id: ServerId;
  #waiting: WaitingRead[] = [];
  #isDue = false;
  readonly #quorums = new Map<string, QuorumRead>();
  #count = 0;

  constructor(server: ReplicaServer) {
    this.#server = server;
    this.#group = server.group;
    this.#id = server.id;
  }

  /** Retries waiting reads at the end of the step. */
  due(): void {
    this.#isDue = true;
  }

  retryIfDue(): void {
    if (!this.#isDue) return;
    this.#isDue = false;
    if (this.#waiting.length === 0) return;
    const reads = this.#waiting;
    this.#waiting = [];
    this.#waiting.push(...reads.filter((read) => !this.#serve(read)));
    if (this.#waiting.length > 0) this.#server.step({ kind: 'read-wanted' });
  }

  /** Whether reads that depend on no operation of this epoch may be answered here, now. */
  get mayServe(): boolean {
    const { replica, processMs } = this.#server;
    return replica?.readGate(0, processMs) === 'serve';
  }

  read(key: string, reply: Reply): void {
    const { observer } = this.#group;
    const beganSeq = observer.committedSeq;
    const agreed = () => {
      const { disk } = this.#server;
      if (disk === undefined) return;
      observer.showsAgreed(this.#id, disk.log, beganSeq);
      reply({ kind: 'value', value: valueIn(disk.log, key) });
    };
    this.#byQuorum(false, agreed, () => this.#readHere(key, reply));
  }

  flush(reply: Reply): void {
    const { observer, counts } = this.#group;
    const agreed = () => {
      const { disk } = this.#server;
      if (disk === undefined) return;
      observer.committed(this.#id, disk.record.seq, disk.log);
      observer.flushed(disk.record.seq);
      counts.agreedFlushes++;
      reply({ kind: 'flushed' });
    };
    this.#byQuorum(true, agreed, () => this.#server.flush(reply));
  }

  #readHere(key: string, reply: Reply): void {
    this.#server.open();
    const { replica, disk } = this.#server;
    if (replica === null || disk === undefined || !viewVoters(disk.record.view).includes(this.#id)) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    const read: WaitingRead = { key, reply, dirty: false, isOver: false };
    if (this.#serve(read)) return;
    this.#waiting.push(read);
    this.#server.step({ kind: 'read-wanted' });
    this.#group.world.later(this.#id, READ_WAIT_MS, () => {
      if (read.isOver) return;
      this.#waiting.splice(this.#waiting.indexOf(read), 1);
      reply({ kind: 'refused', hint: this.#server.hint });
    });
  }

  /** Checks the gate and reads the contents in the same tick. */
  #serve(read: WaitingRead): boolean {
    const { replica, processMs, disk, role } = this.#server;
    if (replica === null || disk === undefined) return false;
    replica.noteRead(processMs);
    const { epoch, committedSeq } = replica.status(processMs);
    const seq = dependsOn(disk.log, read.key, epoch.counter);
    const gate = replica.readGate(seq, processMs);
    if (gate === 'wait' && seq > committedSeq) read.dirty = true;
    if (gate !== 'serve') return false;
    read.isOver = true;
    const by = role === 'active' ? 'primary' : 'backup';
    this.#group.observer.shows(this.#id, disk.log, seq, by, read.dirty);
    read.reply({ kind: 'value', value: valueIn(disk.log, read.key) });
    return true;
  }

  // Quorum reads -----------------------------------------------------------------------------------

  /**
   * @param synced the majority must have synced its position. @param otherwise called if no majority agrees in time
   */
  #byQuorum(synced: boolean, agreed: () => void, otherwise: () => void): void {
    const { disk, isFree } = this.#server;
    const position = disk === undefined ? null : positionForQuorumRead(disk.record, disk.trust);
    const asks = this.#group.options.agrees && !this.mayServe && isFree;
    if (!asks || disk === undefined || position === null) {
      otherwise();
      return;
    }
    const { view } = disk.record;
    const id = `${this.#server.incarnation}.${++this.#count}`;
    this.#quorums.set(id, { position, view, agreeing: new Set(), agreed });
    for (const member of view.members) {
      if (member !== this.#id)
        this.#server.send(member, { kind: 'agree', id, position, view: view.number, synced });
    }
    if (synced) this.#sync(() => this.#agreed(id, this.#id));
    else this.#agreed(id, this.#id);
    this.#group.world.later(this.#id, READ_WAIT_MS, () => {
      if (this.#quorums.delete(id)) otherwise();
    });
  }

  take(from: ServerId, message: Question): void {
    const { id } = message;
    if (message.kind === 'agreed') {
      this.#agreed(id, from);
      return;
    }
    const answer = () => {
      if (this.#isAt(message.position, message.view)) this.#server.send(from, { kind: 'agreed', id });
    };
    if (!message.synced) answer();
    else if (this.#isAt(message.position, message.view)) this.#sync(answer);
  }

  #agreed(id: string, server: ServerId): void {
    const read = this.#quorums.get(id);
    if (read === undefined) return;
    read.agreeing.add(server);
    if (!hasQuorum(read.view, read.agreeing)) return;
    // Otherwise the time limit sends the read to the replica.
    if (!this.#isAt(read.position, read.view.number)) return;
    this.#quorums.delete(id);
    read.agreed();
  }

  #isAt(position: Position, view: number): boolean {
    const { disk, isFree } = this.#server;
    return disk !== undefined && isFree && agrees(disk.record, disk.trust, position, view);
  }

  #sync(done: () => void): void {
    const { disk } = this.#server;
    if (disk === undefined) return;
    const { seq, installed } = disk.record;
    this.#server.storeBeside(() => {
      disk.synced(installed, seq);
      done();
    });
  }
}
