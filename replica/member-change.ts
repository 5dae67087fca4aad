import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { Operation } from './operation.ts';
import type { OrderContext } from './order-context.ts';
import type { View } from './view.ts';
import { sameServers, viewIsAt, viewJoint, viewSettled, viewVoters } from './view.ts';

/** A change: new members fetch the state, then both sets vote, then the new set alone. */
type Change = { readonly tickets: readonly number[] } & (
  | { readonly stage: 'learning'; readonly target: readonly ServerId[] }
  /** `decisions`: how often the lease was decided when the joint view was committed; null before. */
  | { readonly stage: 'joint'; readonly seq: number; readonly decisions: number | null }
  | { readonly stage: 'settling'; readonly seq: number }
);

/** The views of one epoch, and the change of members by joint consensus ([Raft] §6). */
export class MemberChange {
  readonly #context: OrderContext;
  #view: View;
  /** The view in messages: never one that may be lost. */
  #committedView: View;
  /** The view that counts acknowledgements: joint until the end of the change is committed. */
  #countedView: View;
  #change: Change | null = null;

  constructor(context: OrderContext) {
    this.#context = context;
    const { view, seq } = context.state;
    this.#view = view;
    this.#committedView = view;
    this.#countedView = view;
    if (view.joint !== undefined) this.#change = { stage: 'joint', seq, decisions: null, tickets: [] };
  }

  get view(): View {
    return this.#view;
  }

  get committedView(): View {
    return this.#committedView;
  }

  get countedView(): View {
    return this.#countedView;
  }

  /** The members of the newest view, and those to come. */
  get future(): readonly ServerId[] {
    const target = this.#change?.stage === 'learning' ? this.#change.target : [];
    return [...new Set([...viewVoters(this.#view), ...target])];
  }

  get isUnderWay(): boolean {
    return this.#change !== null;
  }

  /** Whether this server no longer votes: another one must be primary. */
  get isRemoved(): boolean {
    return this.#change === null && !viewVoters(this.#view).includes(this.#context.config.self);
  }

  /** Number of the operation that ends the change: it needs both sets, later ones only the new set. */
  get lastJointSeq(): number {
    return this.#change?.stage === 'settling' ? this.#change.seq : Infinity;
  }

  /** Whether a peer that has all up to `seq` uses the newest view. */
  isViewKnownAt(seq: number): boolean {
    return this.#change !== null && this.#change.stage !== 'learning' && seq >= this.#change.seq;
  }

  /**
   * Requests or joins a change; the present members withdraw one whose new members are still learning.
   * @returns whether the peers change: new members must learn now, or need not any more
   */
  request(ticket: number, servers: readonly ServerId[]): boolean {
    const { out } = this.#context;
    const change = this.#change;
    if (change === null && viewIsAt(this.#view, servers)) {
      out.push({ kind: 'members-changed', ticket, view: this.#view });
      return false;
    }
    const target = change?.stage === 'learning' ? change.target : this.#view.joint;
    const isSame = target !== undefined && sameServers(target, servers);
    if (change?.stage === 'joint' && isSame) {
      this.#change = { ...change, tickets: [...change.tickets, ticket] };
      return false;
    }
    if (change !== null && change.stage !== 'learning') {
      out.push({ kind: 'refused', ticket, reason: 'busy' });
      return false;
    }
    const waiting = change?.tickets ?? [];
    if (!isSame) for (const replaced of waiting) out.unknown(replaced);
    if (viewIsAt(this.#view, servers)) {
      this.#change = null;
      out.push({ kind: 'members-changed', ticket, view: this.#view });
      return true;
    }
    this.#change = {
      stage: 'learning',
      target: servers,
      tickets: isSame ? [...waiting, ticket] : [ticket],
    };
    return true;
  }

  committed(view: View): void {
    this.#committedView = view;
  }

  /**
   * Takes the next step of the change if possible. Both sets vote once the joint view is *sequenced*. The settled
   * view follows after the joint one is committed and both sets decided a lease, so that a majority of the new set
   * knows it.
   * @param sequence orders the operation and returns its number
   * @returns whether an operation was sequenced or the change is complete
   */
  advance(committedSeq: number, sequence: (operation: Operation) => number): boolean {
    const change = this.#change;
    const { lease, epoch } = this.#context;
    switch (change?.stage) {
      case undefined:
        return false;
      case 'learning': {
        if (!this.#haveLearned(change.target, committedSeq)) return false;
        this.#view = viewJoint(this.#view, change.target, epoch.counter);
        this.#countedView = this.#view;
        const seq = sequence(changeOfView(this.#view));
        this.#change = { stage: 'joint', tickets: change.tickets, decisions: null, seq };
        return true;
      }
      case 'joint':
        if (committedSeq < change.seq) return false;
        // A lease decided before a majority has the view for good does not count: a voter without it may restart and
        // use the older view again.
        if (change.decisions === null) {
          this.#change = { ...change, decisions: lease.decisions };
          return false;
        }
        if (lease.decisions === change.decisions || lease.view < this.#view.number) return false;
        this.#view = viewSettled(this.#view);
        this.#change = {
          stage: 'settling',
          tickets: change.tickets,
          seq: sequence(changeOfView(this.#view)),
        };
        return true;
      case 'settling':
        if (committedSeq < change.seq) return false;
        this.#completeChange(change.tickets, committedSeq);
        return true;
    }
  }

  /** Whether new members have the state, so that their votes delay no commit. */
  #haveLearned(target: readonly ServerId[], committedSeq: number): boolean {
    const { peers, config } = this.#context;
    const hasIt = (server: ServerId): boolean => {
      if (server === config.self) return true;
      const peer = peers.get(server);
      const isWhole = peer.isInstalled && !peer.isFetching && peer.trust !== 'lost';
      return isWhole && peer.ackedSeq >= committedSeq;
    };
    // From then on every commit needs a majority of them, without those that lost their disks.
    const areReady = target.filter(hasIt).length >= majority(target.length);
    const voters = viewVoters(this.#view);
    return areReady && target.every((server) => voters.includes(server) || hasIt(server));
  }

  /** Called when the change's last operation is committed: answers its clients, and drops the removed members. */
  #completeChange(tickets: readonly number[], committedSeq: number): void {
    const { out, peers, epoch } = this.#context;
    const view = this.#view;
    this.#change = null;
    this.#countedView = view;
    out.trace('members-changed', `${view.number}: ${view.members.join()}`);
    for (const ticket of tickets) out.push({ kind: 'members-changed', ticket, view });
    for (const server of peers.servers()) {
      if (view.members.includes(server)) continue;
      // It received the operation that removes it; now it learns that this is committed.
      out.send(server, { kind: 'commit', epoch, committedSeq });
      peers.remove(server);
    }
  }

  abandon(): void {
    for (const ticket of this.#change?.tickets ?? []) this.#context.out.unknown(ticket);
    this.#change = null;
  }
}

function changeOfView(view: View): Operation {
  const nothing = new Uint8Array(0);
  return { request: null, result: nothing, body: nothing, view };
}
