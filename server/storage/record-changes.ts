import type { FileId } from '../../base/ids.ts';

/** @param isPlaced the replica is new here, or its view changed */
type Listener = (file: FileId, isPlaced: boolean) => void;

/** Reports the files whose records changed in this store, or are gone, so that no work has to look for them. */
export class RecordChanges {
  readonly #listeners: Listener[] = [];

  on(listener: Listener): void {
    this.#listeners.push(listener);
  }

  /** Call when the store shows the change. */
  report(file: FileId, isPlaced: boolean): void {
    for (const listener of this.#listeners) listener(file, isPlaced);
  }
}
