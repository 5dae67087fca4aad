/**
 * A server that creates the file with contents, or stores it for the creating server
 * (`replica/create-with-contents.ts`).
 */
import type { ServerId } from '../../base/ids.ts';
import {
  CreationQuorum,
  firstEpoch,
  mayCreateWithContents,
  NumberReservations,
} from '../../replica/create-with-contents.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { operationOf, type Write } from './replica-disk.ts';
import type { ReplicaGroup } from './replica-group.ts';
import { FILE, type GroupMessage } from './replica-messages.ts';
import type { ReplicaServer } from './replica-server.ts';

type Creation = Extract<GroupMessage, { readonly kind: 'create' }>;
type Created = Extract<GroupMessage, { readonly kind: 'created' }>;

const OWNER = 1;

export class Creations {
  readonly #group: ReplicaGroup;
  readonly #server: ReplicaServer;
  readonly #id: ServerId;
  readonly #epoch: Epoch;
  readonly #numbers = new NumberReservations();
  #birth: CreationQuorum | null = null;
  #request = '';
  #isNamed = false;
  /** The disk is creating the replica; nothing may use it before. */
  isStoring = false;

  constructor(server: ReplicaServer) {
    this.#server = server;
    this.#group = server.group;
    this.#id = server.id;
    this.#epoch = firstEpoch(server.id, server.incarnation);
    const { members } = server.group.firstView;
    const place = { members, replicas: members.length, placement: 0 };
    // The catalog reserves numbers for one life.
    this.#numbers.add({ ...place, owner: OWNER, first: FILE, last: FILE, untilMs: Infinity });
  }

  /** A client sends the contents; it may send them again, or others, which must have no effect. */
  create(request: string, write: Write): void {
    if (!this.#numbers.take(OWNER, FILE, 0)) return;
    const view = this.#group.firstView;
    this.#request = request;
    this.#birth = new CreationQuorum(view, 1);
    const creation = {
      kind: 'create',
      epoch: this.#epoch,
      view,
      operation: operationOf(request, write),
    } as const;
    for (const member of view.members) if (member !== this.#id) this.#server.send(member, creation);
    this.#store(creation, () => this.#stored(this.#id));
  }

  take(from: ServerId, message: Creation | Created): void {
    const { epoch } = message;
    const { incarnation } = this.#server;
    if (message.kind === 'create')
      this.#store(message, () => this.#server.send(from, { kind: 'created', epoch, incarnation }));
    else if (epoch.incarnation === incarnation) this.#stored(from);
  }

  #store({ epoch, view, operation }: Creation, stored: () => void): void {
    const { disks, faults, observer, counts } = this.#group;
    const here = disks.get(this.#id)?.record ?? null;
    const isFree = !this.isStoring && faults.departedBy(this.#id) === null;
    if (!isFree || !mayCreateWithContents(this.#id, view, here, faults.trustOfNew(this.#id))) {
      counts.creationsRefused++;
      return;
    }
    this.isStoring = true;
    this.#server.storeBeside(() => {
      this.isStoring = false;
      const disk = this.#group.createDisk(this.#id, view);
      disk.create(epoch, operation);
      observer.stored(this.#id, disk);
      stored();
    });
  }

  /** A majority has the file, so it has its name: each read shows the contents. */
  #stored(server: ServerId): void {
    const { observer, disks, counts } = this.#group;
    this.#birth?.stored(server, [0]);
    if (this.#birth?.isOnMajority(0) !== true || this.#isNamed) return;
    this.#isNamed = true;
    const holder = [...disks].find(([, { log }]) => log[0]?.request === this.#request);
    // After a majority lost power, contents that were not synced may be gone.
    if (holder === undefined && !observer.neverForgot) return;
    if (holder !== undefined && observer.committedSeq === 0) observer.committed(holder[0], 1, holder[1].log);
    counts.created++;
    this.#server.ended({ epoch: this.#epoch, seq: 1 });
    observer.answered(this.#request, 1);
  }
}
