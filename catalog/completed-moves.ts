import type { Tables } from './tables.ts';
import type { MoveRow } from './volume-move-tables.ts';

/**
 * The volume's catalog has begun with all rows: from now on the volume is there. Nothing shows its rows here until they
 * are deleted, under a name that no volume can have.
 */
export function completeMove({ moves, volumes }: Tables, move: MoveRow): void {
  moves.enter(move, 'moved');
  volumes.rename(move.volume, `moved to catalog ${move.catalog}`);
}
