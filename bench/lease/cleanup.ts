import type { ChildProcess } from 'node:child_process';
import { rmSync } from 'node:fs';

const undos = new Set<() => void>();
let watching = false;

/**
 * Calls `undo` when this process ends by itself, by Ctrl-C or by a failure. `undo` must be synchronous.
 *
 * @returns a function that calls `undo` at once, and not again at the end
 */
export function undoAtEnd(undo: () => void): () => void {
  if (!watching) {
    watching = true;
    process.on('exit', () => {
      for (const each of [...undos].reverse()) each();
    });
    for (const [signal, code] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
      ['SIGHUP', 129],
    ] as const) {
      process.on(signal, () => process.exit(code));
    }
  }
  undos.add(undo);
  return () => {
    if (undos.delete(undo)) undo();
  };
}

/** Kills a process when this one ends. @returns a function that kills it at once */
export function killAtEnd(child: ChildProcess): () => void {
  return undoAtEnd(() => child.kill('SIGKILL'));
}

/** Removes a file or folder when this process ends. @returns a function that removes it at once */
export function removeAtEnd(path: string): () => void {
  return undoAtEnd(() => rmSync(path, { recursive: true, force: true, maxRetries: 3 }));
}
