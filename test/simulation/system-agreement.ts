/** One life of a server that reads and syncs where nobody leads, because a majority stands where it stands: as the servers' `AgreedFiles` does. */
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { agrees, isAgreed, standpointOf } from '../../replica/agreement.ts';
import type { Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import type { SystemWorld } from './system-world.ts';

export type AgreementMessage =
  | {
      readonly kind: 'agree';
      readonly id: string;
      readonly place: Position;
      readonly viewNumber: number;
      /** Once all that is there survives loss of power. */
      readonly synced: boolean;
    }
  | { readonly kind: 'agreed'; readonly id: string };

/** What a reader needs of the process that it is part of. */
interface Surroundings {
  readonly id: ServerId;
  readonly incarnation: Incarnation;
  send(to: ServerId, message: AgreementMessage): void;
  /** @see Replica.isFree */
  isFree(): boolean;
  /** Syncs what is on the disk now. */
  sync(done: () => void): void;
}

interface Reading {
  readonly place: Position;
  readonly view: View;
  readonly agreeing: Set<ServerId>;
  /** In this turn the contents here may be shown. */
  show(): void;
}

export class AgreementCourse {
  readonly #system: SystemWorld;
  readonly #around: Surroundings;
  readonly #readings = new Map<string, Reading>();
  #count = 0;

  constructor(system: SystemWorld, around: Surroundings) {
    this.#system = system;
    this.#around = around;
  }

  /** @returns what to call when it is not waited for any more; null where nobody needs to be asked, for it cannot be */
  read(show: () => void): (() => void) | null {
    return this.#ask(false, show);
  }

  /** As `read`, of those who have synced what they have, as this server has by then. */
  flush(synced: () => void): (() => void) | null {
    return this.#ask(true, synced);
  }

  #ask(synced: boolean, show: () => void): (() => void) | null {
    const { id: self, incarnation, send } = this.#around;
    const disk = this.#system.disks.get(self);
    const place = disk === undefined ? null : standpointOf(disk.record, disk.trust);
    if (disk === undefined || place === null || !this.#around.isFree()) return null;
    const { view } = disk.record;
    const id = `${incarnation}.${++this.#count}`;
    this.#readings.set(id, { place, view, agreeing: new Set(), show });
    for (const member of view.members)
      if (member !== self) send(member, { kind: 'agree', id, place, viewNumber: view.number, synced });
    if (synced) this.#around.sync(() => this.#agreed(id, self));
    else this.#agreed(id, self);
    return () => void this.#readings.delete(id);
  }

  take(from: ServerId, message: AgreementMessage): void {
    if (message.kind === 'agreed') {
      this.#agreed(message.id, from);
      return;
    }
    const answer = (): void => {
      if (this.#stands(message.place, message.viewNumber))
        this.#around.send(from, { kind: 'agreed', id: message.id });
    };
    if (!message.synced) answer();
    else if (this.#stands(message.place, message.viewNumber)) this.#around.sync(answer);
  }

  #agreed(id: string, server: ServerId): void {
    const reading = this.#readings.get(id);
    if (reading === undefined) return;
    const { agreeing, view, place, show } = reading;
    agreeing.add(server);
    if (!isAgreed(view, agreeing)) return;
    this.#readings.delete(id);
    if (this.#stands(place, view.number)) show();
  }

  #stands(place: Position, viewNumber: number): boolean {
    const disk = this.#system.disks.get(this.#around.id);
    return disk !== undefined && this.#around.isFree() && agrees(disk.record, disk.trust, place, viewNumber);
  }
}
