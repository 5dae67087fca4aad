import { LRUCache } from 'lru-cache';
import type { Subject } from './exchange.ts';

const FILES_MAX = 20_000;

/**
 * Who answered for files last. A file that nobody leads is gone on with by whoever has ordered it last, at less cost than by anybody else
 * (docs/design/mount.md, "A small change of a file at rest"): who opens it again asks there first.
 */
export class LastPrimaries {
  // Told a size, and not a maximum, the library takes memory for what there is.
  readonly #known = new LRUCache<number, string>({ maxSize: FILES_MAX, sizeCalculation: () => 1 });

  note(file: number, server: string): void {
    this.#known.set(file, server);
  }

  /**
   * @param first who is asked first where nothing is known
   * @returns what requests about the file are about; all of one file share what is known
   */
  subject(file: number, first: string | null): Subject {
    const known = this.#known;
    return {
      get primary() {
        return known.get(file) ?? first;
      },
      set primary(server) {
        if (server === null || server === first) known.delete(file);
        else known.set(file, server);
      },
    };
  }
}
