/** One life of a server that bears the subject, or is asked to store it as it is borne: as the servers' `ReplicaHost` and `Births` do. */
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { Birth, BirthNumbers, firstEpoch, mayBeBorne } from '../../replica/birth.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { View } from '../../replica/view.ts';
import { encodeFileOperation } from '../../wire/file-operation.ts';
import type { SimulatedDisk } from './disk-simulated.ts';
import { requestKey, resultEncode } from './system-contents.ts';
import { FILE } from './system-messages.ts';
import type { FileWish } from './system-subject.ts';
import type { SystemWorld } from './system-world.ts';

/** How often births came to what. */
export interface BirthCounts {
  /** A majority had the contents, and the subject got its name. */
  borne: number;
  /** A replica refused: it had promised or installed something, or may have forgotten that. */
  birthsRefused: number;
  /** A replica went with the power, and was made anew as one that may have forgotten something. */
  birthsForgotten: number;
}

/** What a birth needs of the process that it is part of. */
interface Surroundings {
  readonly id: ServerId;
  readonly incarnation: Incarnation;
  send(to: ServerId, message: BirthMessage): void;
  /** The disk has so much to do; it calls back with whether it works and has room. A crash before loses it. */
  store(done: (works: boolean) => void): void;
  /** The subject has its name: whoever has borne it may lead it by the epoch of the birth. */
  named(): void;
}

export type BirthMessage =
  | {
      readonly kind: 'birth';
      readonly epoch: Epoch;
      readonly view: View;
      readonly operations: readonly Operation[];
    }
  | { readonly kind: 'birth-stored'; readonly epoch: Epoch; readonly incarnation: Incarnation };

/** The subject is written, and settled, before anybody knows of it. */
export class BirthCourse {
  readonly #system: SystemWorld;
  readonly #around: Surroundings;
  readonly #numbers = new BirthNumbers();
  readonly #epoch: Epoch;
  #birth: Birth | null = null;
  #key = '';
  #sizeBytes = 0;
  #isBorne = false;
  /** The disk is making the replica: nobody else takes it into use. */
  isStoring = false;

  constructor(system: SystemWorld, around: Surroundings) {
    this.#system = system;
    this.#around = around;
    this.#epoch = firstEpoch(around.id, around.incarnation);
    if (system.hasNumber()) this.#reserve();
  }

  #reserve(): void {
    const { members } = this.#system.firstView;
    const place = { members, replicas: members.length };
    this.#numbers.reserved({ ...place, owner: 1, first: FILE, last: FILE, untilMs: Infinity });
  }

  /** A client brings the contents. It may say so again, and other contents: then nothing comes of it. */
  bear(wish: FileWish & { readonly kind: 'write' }, session: number): void {
    if (!this.#numbers.take(1, FILE, 0)) return;
    const { observers, firstView: view } = this.#system;
    this.#key = requestKey({ session, number: 1, since: 0 }, wish);
    observers.called(this.#key, wish);
    const bytes = new TextEncoder().encode(wish.value);
    const write = encodeFileOperation({ kind: 'write', offset: 8 * wish.object, bytes, modifiedNs: 0n });
    const operations: Operation[] = [
      { request: null, result: resultEncode(this.#key, ''), body: write },
      {
        request: null,
        result: resultEncode('settling', ''),
        body: encodeFileOperation({ kind: 'settling' }),
      },
    ];
    this.#sizeBytes = 8 * wish.object + bytes.length;
    this.#birth = new Birth(view, 1);
    const birth: BirthMessage = { kind: 'birth', epoch: this.#epoch, view, operations };
    for (const member of view.members) if (member !== this.#around.id) this.#around.send(member, birth);
    this.#store(birth, () => this.#stored(this.#around.id));
  }

  take(from: ServerId, message: BirthMessage): void {
    if (message.kind === 'birth') {
      const { epoch } = message;
      const { incarnation, send } = this.#around;
      this.#store(message, () => send(from, { kind: 'birth-stored', epoch, incarnation }));
    } else if (message.epoch.incarnation === this.#around.incarnation) {
      this.#stored(from);
    }
  }

  #store({ epoch, view, operations }: Extract<BirthMessage, { kind: 'birth' }>, stored: () => void): void {
    const { disks, troubles, observers } = this.#system;
    const { id, store } = this.#around;
    const here = disks.get(id)?.record ?? null;
    const isFree = !this.isStoring && troubles.departedBy(id) === null;
    if (!isFree || !mayBeBorne(id, view, here, troubles.trustOfNew(id))) {
      troubles.births.birthsRefused++;
      return;
    }
    this.isStoring = true;
    store((works) => {
      this.isStoring = false;
      if (!works) return;
      const disk: SimulatedDisk = this.#system.createDisk(id, view);
      disk.bear(epoch, operations);
      observers.stored(id, disk);
      stored();
    });
  }

  /** With its name it is there: whoever reads it is shown what was borne. */
  #stored(server: ServerId): void {
    const { observers, troubles, disks, snapshots, firstView } = this.#system;
    this.#birth?.holds(server, [0]);
    if (this.#birth?.isBorne(0) !== true || this.#isBorne) return;
    this.#isBorne = true;
    const holder = [...disks].find(([, { contents }]) => contents.log[0]?.request === this.#key);
    // Where more than a minority has lost power since, it may be gone with all that was not synced.
    if (holder === undefined && !observers.neverForgot) return;
    if (holder !== undefined && observers.committedSeq < 2)
      observers.committed(holder[0], 2, holder[1].contents);
    const { segment } = observers;
    const named = (): void => {
      troubles.births.borne++;
      this.#around.named();
      observers.answered(this.#key, '', 1, segment);
    };
    if (snapshots === null) named();
    else snapshots.name(this.#around.id, this.#sizeBytes, firstView.members, named);
  }
}
