import type { World } from '../../base/world.ts';
import type { PlacedFile, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { ServerCondition } from './wanted-members.ts';

const PAGE = 500;

export interface FileListsParts {
  readonly world: Pick<World, 'nextTick'>;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
}

/** Lists of files from the catalog, page by page; requests of clients are served between two pages. */
export class FileLists {
  readonly #parts: FileListsParts;

  constructor(parts: FileListsParts) {
    this.#parts = parts;
  }

  /** Files with a replica on a server. @param after the inode after which the list begins */
  async *on(server: string, after = 0): AsyncGenerator<PlacedFile> {
    for (let last = after; ; ) {
      const page: QueryResults['files-on'] = await this.#parts.query({
        kind: 'files-on',
        server,
        after: last,
        countMax: PAGE,
      });
      yield* page.files;
      const end = page.files.at(-1);
      if (!page.more || end === undefined) return;
      last = end.inode;
      await this.#parts.world.nextTick();
    }
  }

  /** Files on several servers, the servers in turn; each file once. */
  async *onAny(servers: readonly string[]): AsyncGenerator<PlacedFile> {
    const lists = servers.map((server, place) => ({
      earlier: new Set(servers.slice(0, place)),
      files: this.on(server),
    }));
    while (lists.length > 0) {
      for (const list of [...lists]) {
        const next = await list.files.next();
        if (next.done === true) lists.splice(lists.indexOf(list), 1);
        // The list of the earlier server has it, too.
        else if (!next.value.members.some((member) => list.earlier.has(member))) yield next.value;
      }
    }
  }

  /** Files with too few or too many replicas. */
  async *miscounted(conditions: readonly ServerCondition[]): AsyncGenerator<PlacedFile> {
    const servers = conditions.filter(({ state, toBeReplaced }) => state === 'in' && !toBeReplaced).length;
    for (let after: QueryResults['files-miscounted']['next'] = null; ; ) {
      const page: QueryResults['files-miscounted'] = await this.#parts.query({
        kind: 'files-miscounted',
        servers,
        after,
        countMax: PAGE,
      });
      yield* page.files;
      if (page.next === null) return;
      after = page.next;
      await this.#parts.world.nextTick();
    }
  }

  /** Files with a plan for new members. */
  async *planned(): AsyncGenerator<PlacedFile> {
    for (let after: number | null = 0; after !== null; ) {
      const page: QueryResults['plans'] = await this.#parts.query({ kind: 'plans', after, countMax: PAGE });
      yield* page.files;
      after = page.next;
    }
  }
}
