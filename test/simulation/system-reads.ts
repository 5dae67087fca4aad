/**
 * Reads at one server of a system simulation, as the server answers them: from what is sealed for ever, from what a majority agrees about where
 * nobody leads, and else when the replica's gate lets them through.
 */
import { assert } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import type { ReplicaEvent } from '../../replica/actions.ts';
import type { Replica } from '../../replica/replica.ts';
import { viewVoters } from '../../replica/view.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import type { SimulatedDisk } from './disk-simulated.ts';
import type { AgreementCourse } from './system-agreement.ts';
import type { Contents } from './system-contents.ts';
import { type FileContents, WHOLE_FILE } from './system-file.ts';
import type { Reply } from './system-messages.ts';
import type { ObjectCare } from './system-rot.ts';
import type { SealedStore } from './system-seal.ts';
import type { SystemWorld } from './system-world.ts';

/** A read that may not be answered here for so long is sent elsewhere. */
export const READ_WAIT_MS = 80;

interface WaitingRead {
  readonly what: string;
  readonly reply: Reply;
  readonly asOf: ContentVersion | null;
  /** It was allowed, but for an operation that is not known to be committed. */
  dirty: boolean;
  over: boolean;
}

/** The server that reads are for. */
interface ReadParts {
  readonly id: ServerId;
  readonly care: ObjectCare;
  readonly agreement: AgreementCourse;
  /** Null where none is in use. */
  replica(): Replica | null;
  isPrimary(): boolean;
  /** By the clock of the process. */
  nowMs(): number;
  /** What lies here, if it was sealed finally. */
  final(): SealedStore | null;
  /** Somebody uses the file here. */
  open(): void;
  step(event: ReplicaEvent): void;
  /** Whom clients had better ask. */
  hint(): ServerId | null;
}

/** The reads that clients ask of one server. */
export class ReadCourse {
  readonly #system: SystemWorld;
  readonly #parts: ReadParts;
  #waiting: WaitingRead[] = [];
  #isDue = false;

  constructor(system: SystemWorld, parts: ReadParts) {
    this.#system = system;
    this.#parts = parts;
  }

  /** A read of the whole file as of a version. @param done given null where this server cannot answer now */
  asOf(asOf: ContentVersion, done: (answer: string | 'moved-on' | null) => void): void {
    this.read(
      WHOLE_FILE,
      (answer) => {
        if (answer.kind === 'moved-on') done('moved-on');
        else done(answer.kind === 'value' ? answer.value : null);
      },
      asOf,
    );
  }

  /** Something has changed: those who wait look again at the end of the step. */
  due(): void {
    this.#isDue = true;
  }

  retryIfDue(): void {
    if (!this.#isDue) return;
    this.#isDue = false;
    if (this.#waiting.length === 0) return;
    const reads = this.#waiting;
    this.#waiting = [];
    const left = reads.filter((read) => !this.#tryRead(read));
    this.#waiting.push(...left);
    if (left.length > 0) this.#parts.step({ kind: 'read-wanted' });
  }

  /** @param asOf the version that is meant; absent: whatever there is */
  read(what: string, reply: Reply, asOf?: ContentVersion): void {
    if (this.#readFinally(what, reply)) return;
    if (this.#system.options.agrees && !this.mayServe())
      this.#readAgreed(what, reply, () => this.#readLed(what, reply, asOf), asOf);
    else this.#readLed(what, reply, asOf);
  }

  /** Where nobody leads: a majority that stands at one place is asked whether it does. @param otherwise it does not, or not in time */
  #readAgreed(what: string, reply: Reply, otherwise: () => void, asOf?: ContentVersion): void {
    const { observers, troubles, world } = this.#system;
    let isOver = false;
    const giveUp = this.#parts.agreement.read(() => {
      isOver = true;
      const { contents, record } = this.#disk;
      observers.committed(this.#parts.id, record.seq, contents);
      if (asOf !== undefined && !isOf(contents, asOf)) {
        reply({ kind: 'moved-on' });
        return;
      }
      if (!this.#parts.care.mayShow(what)) {
        reply({ kind: 'integrity' });
        return;
      }
      troubles.counts.agreedReads++;
      const { isSoon: soon, segment } = observers;
      reply({ kind: 'value', value: contents.look(what), role: 'agreed', dirty: false, soon, segment });
    });
    if (giveUp === null) {
      otherwise();
      return;
    }
    world.later(this.#parts.id, READ_WAIT_MS, () => {
      if (isOver) return;
      giveUp();
      otherwise();
    });
  }

  #readLed(what: string, reply: Reply, asOf?: ContentVersion): void {
    this.#parts.open();
    const replica = this.#parts.replica();
    if (replica === null || !viewVoters(this.#disk.record.view).includes(this.#parts.id)) {
      reply({ kind: 'refused', hint: null });
      return;
    }
    const read: WaitingRead = { what, reply, asOf: asOf ?? null, dirty: false, over: false };
    if (this.#tryRead(read)) return;
    this.#system.counts.waits++;
    this.#waiting.push(read);
    this.#parts.step({ kind: 'read-wanted' });
    this.#system.world.later(this.#parts.id, READ_WAIT_MS, () => {
      if (read.over) return;
      this.#waiting.splice(this.#waiting.indexOf(read), 1);
      reply({ kind: 'refused', hint: this.#parts.hint() });
    });
  }

  /** Whoever has the second seal asks nobody. @returns whether the read is answered */
  #readFinally(what: string, reply: Reply): boolean {
    const final = this.#parts.final();
    if (final === null) return false;
    const { observers, troubles } = this.#system;
    observers.showsFinal(this.#parts.id, final.contents);
    if (!this.#parts.care.mayShow(what)) {
      reply({ kind: 'integrity' });
      return true;
    }
    troubles.seal.finalReads++;
    if (!this.mayServe()) troubles.seal.finalReadsAlone++;
    reply({
      kind: 'value',
      value: final.contents.look(what),
      role: 'final',
      dirty: false,
      soon: observers.isSoon,
      segment: observers.segment,
    });
    return true;
  }

  /** Gate and contents in one turn. */
  #tryRead(read: WaitingRead): boolean {
    const replica = this.#parts.replica();
    if (replica === null) return false;
    const { observers } = this.#system;
    const nowMs = this.#parts.nowMs();
    replica.noteRead(nowMs);
    const contents = this.#disk.contents;
    const dependsOn = contents.dependsOn(read.what, replica.status(nowMs).epoch.counter);
    const gate = replica.readGate(dependsOn, nowMs);
    if (gate === 'wait' && dependsOn > replica.status(nowMs).committedSeq) read.dirty = true;
    if (gate !== 'serve') return false;
    read.over = true;
    if (read.asOf !== null && !isOf(contents, read.asOf)) {
      read.reply({ kind: 'moved-on' });
      return true;
    }
    observers.mayShow(this.#parts.id, contents);
    observers.shows(this.#parts.id, dependsOn);
    if (!this.#parts.care.mayShow(read.what)) {
      read.reply({ kind: 'integrity' });
      return true;
    }
    read.reply({
      kind: 'value',
      value: contents.look(read.what),
      role: this.#parts.isPrimary() ? 'primary' : 'backup',
      dirty: read.dirty,
      soon: observers.isSoon,
      segment: observers.segment,
    });
    return true;
  }

  /** Whether reads that depend on nothing new may be answered here, now. */
  mayServe(): boolean {
    return this.#parts.replica()?.readGate(0, this.#parts.nowMs()) === 'serve';
  }

  get #disk(): SimulatedDisk {
    const disk = this.#system.disks.get(this.#parts.id);
    assert(disk !== undefined, 'A replica has a disk');
    return disk;
  }
}

function isOf(contents: Contents, { epoch, seq }: ContentVersion): boolean {
  const { versionEpoch, versionSeq } = (contents as FileContents).attributes;
  return versionEpoch === epoch && versionSeq === seq;
}
