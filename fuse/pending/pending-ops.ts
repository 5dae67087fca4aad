import { unreachable } from '../../base/assert.ts';
import type { World } from '../../base/world.ts';
import type { Place } from '../place.ts';
import { Budget } from './budget.ts';
import { ErrorSequence } from './error-sequence.ts';

/** The pending operations of a flush: all, in a directory, of an inode, of a name. */
export type FlushScope =
  | { readonly kind: 'all' }
  | { readonly kind: 'directory' | 'inode'; readonly inode: number }
  | ({ readonly kind: 'name' } & Place);

export const FLUSH_ALL: FlushScope = { kind: 'all' };

export interface OperationKeys extends Place {
  readonly inode: number;
}

/** The order of a flush: writes before their creates, access times after the changes that they are compared with. */
const KINDS = ['write', 'create', 'unlink', 'access-time'] as const;
export type OperationKind = (typeof KINDS)[number];

export interface PendingKind {
  /** Resolves when the cluster has the earlier operations. @throws a failure that is not in the error sequence */
  flush(scope: FlushScope): Promise<void>;
}

export function isInScope(scope: FlushScope, { parent, name, inode }: OperationKeys): boolean {
  switch (scope.kind) {
    case 'all':
      return true;
    case 'directory':
      return parent === scope.inode;
    case 'inode':
      return inode === scope.inode;
    case 'name':
      return parent === scope.parent && name === scope.name;
    default:
      return unreachable(scope);
  }
}

/** The operations that were acknowledged and that the cluster does not have: one budget, one error sequence. */
export class PendingOps {
  readonly budget: Budget;
  readonly errors = new ErrorSequence();
  readonly #kinds = new Map<OperationKind, PendingKind>();

  constructor(world: World) {
    this.budget = new Budget(world);
  }

  add(kind: OperationKind, operations: PendingKind): void {
    this.#kinds.set(kind, operations);
  }

  /** Flushes one kind after the other. @throws the first error, after all are flushed */
  async flush(scope: FlushScope, kinds: readonly OperationKind[] = KINDS): Promise<void> {
    const failures: unknown[] = [];
    for (const kind of KINDS) {
      if (!kinds.includes(kind)) continue;
      await this.#kinds
        .get(kind)
        ?.flush(scope)
        .catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  }
}
