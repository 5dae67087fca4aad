/**
 * The members of cells as they change in a simulation. The layer above decides which servers vote, with majorities of
 * its own and on disk; here its rules are simulated, so that each violation is one of the lease layer:
 *
 * - views have numbers; odd ones are settled, an even one is the change from the one before to the next;
 * - a server remembers over restarts the newest view that it was informed of and votes in, and always opens it: so its
 * acceptor refuses proposers with an older one;
 * - a change begins once a majority knows the settled view before it;
 * - it ends once majorities of both sides know it, and *after that* a lease was decided under it: so a majority of the
 * new side knows the lease. One that was decided before does not count: a server that voted on it without knowing the
 * view may restart and use the old view once more.
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import type { Prng } from '../../base/prng.ts';
import { majority } from '../../base/quorum.ts';

export interface CellView {
  readonly view: number;
  readonly members: readonly ServerId[];
  /** Only while members change: the next members. */
  readonly joint?: readonly ServerId[];
}

export class CellViews {
  readonly #views: CellView[];
  readonly #known = new Map<ServerId, CellView>();
  /** Views in which a lease was decided. */
  readonly #decided = new Set<number>();

  constructor(members: readonly ServerId[]) {
    const first = { view: 1, members };
    this.#views = [first];
    for (const id of members) this.#known.set(id, first);
  }

  /** The newest view. */
  get latest(): CellView {
    return this.#views[this.#views.length - 1] as CellView;
  }

  /** @returns the view of a server, or null if it has never voted */
  of(server: ServerId): CellView | null {
    return this.#known.get(server) ?? null;
  }

  /** A server reports that a lease was decided in its view. */
  decided(server: ServerId): void {
    const known = this.of(server);
    const { latest } = this;
    if (known === null || known.view !== latest.view) return;
    if (this.#isKnown(latest.members) && this.#isKnown(latest.joint ?? latest.members)) {
      this.#decided.add(known.view);
    }
  }

  /** Informs a server of a view, unless the rules forbid it. @returns whether the server has the view now */
  adopt(server: ServerId, view: CellView): boolean {
    if (view.view <= (this.of(server)?.view ?? 0) || !isVoter(view, server)) return false;
    const named = this.#views[view.view - 1];
    if (named === undefined) {
      if (!this.#mayFollow(view)) return false;
      this.#views.push(view);
    } else if (!isSame(named, view)) {
      return false;
    }
    this.#known.set(server, view);
    return true;
  }

  /** @returns a new view if there may be one, otherwise the newest */
  draw(dice: Prng, ids: readonly ServerId[]): CellView {
    const { latest } = this;
    const { view, members, joint } = latest;
    if (joint !== undefined) {
      const settled = { view: view + 1, members: joint };
      return this.#mayFollow(settled) ? settled : latest;
    }
    const others = ids.filter(() => dice.chance(0.5));
    const change = { view: view + 1, members, joint: others.length > 0 ? others : members };
    return this.#mayFollow(change) && dice.chance(0.3) ? change : latest;
  }

  #mayFollow(view: CellView): boolean {
    const { latest } = this;
    if (view.view !== latest.view + 1) return false;
    if (view.joint !== undefined) {
      return (
        latest.joint === undefined && isEqual(view.members, latest.members) && this.#isKnown(latest.members)
      );
    }
    if (latest.joint === undefined || !isEqual(view.members, latest.joint)) return false;
    return this.#isKnown(latest.members) && this.#isKnown(latest.joint) && this.#decided.has(latest.view);
  }

  #isKnown(members: readonly ServerId[]): boolean {
    const { latest } = this;
    const knowing = members.filter((id) => (this.of(id)?.view ?? 0) >= latest.view);
    return knowing.length >= majority(members.length);
  }
}

export function isVoter(view: CellView, server: ServerId): boolean {
  return view.members.includes(server) || (view.joint?.includes(server) ?? false);
}

/** The views of all cells of a run. */
export class ViewBook {
  readonly #cells: readonly CellViews[];
  /** Whether members change in this run. */
  readonly changing: boolean;

  constructor(cells: readonly CellId[], members: readonly ServerId[], changing: boolean) {
    this.changing = changing;
    this.#cells = cells.map(() => new CellViews(members));
  }

  cell(cell: CellId): CellViews {
    const views = this.#cells[cell - 1];
    if (views === undefined) throw new Error(`There is no cell ${cell}`);
    return views;
  }
}

function isSame(a: CellView, b: CellView): boolean {
  return isEqual(a.members, b.members) && isEqual(a.joint ?? [], b.joint ?? []);
}

function isEqual(a: readonly ServerId[], b: readonly ServerId[]): boolean {
  return a.join() === b.join();
}
