import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, FileId, ServerId } from '../../base/ids.ts';
import { viewMembersFormat, viewsConflict, viewVoters } from '../../replica/view.ts';
import type { PlacedFile, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { Finding } from '../../wire/http-api.ts';
import type { FileStore } from '../storage/store.ts';
import type { Unsettleable } from './reservation-sweep.ts';
import type { ViewConflicts } from './view-conflicts.ts';

const PAGE = 1_000;

export interface ReplicaCheckParts {
  readonly self: ServerId;
  readonly store: Pick<FileStore, 'list' | 'record'>;
  readonly conflicts: Pick<ViewConflicts, 'current' | 'compare'>;
  unsettleable(): readonly Unsettleable[];
  catalogOf(file: number): CatalogNumber;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
}

export interface CheckedPage {
  readonly findings: readonly Finding[];
  readonly compared: number;
  readonly next: number | null;
}

/** Compares the replicas of this server with the catalogs, for `leasehold check`; changes nothing. */
export class ReplicaCheck {
  readonly #parts: ReplicaCheckParts;

  constructor(parts: ReplicaCheckParts) {
    this.#parts = parts;
  }

  async page(after: FileId): Promise<CheckedPage> {
    const { store, query } = this.#parts;
    const page = store.list(after, PAGE);
    const answers = await this.#askCatalogs(page, (own) => query({ kind: 'placed', inodes: own }));
    const placed = new Map(answers.flatMap(({ files }) => files.map((file) => [file.inode, file])));
    const awaited = new Set(answers.flatMap(({ reserved }) => reserved));
    const known = new Map(this.#parts.conflicts.current.map(({ file, what }) => [file, what]));
    const findings = page.flatMap((file) => {
      if (awaited.has(file)) return [];
      return this.#finding(file, placed.get(file) ?? null, known.get(file) ?? null) ?? [];
    });
    const next = page.length < PAGE ? null : (page.at(-1) ?? null);
    const { self, unsettleable } = this.#parts;
    for (const { file, reason } of unsettleable())
      if (file > after && (next === null || file <= next))
        findings.push({ file, server: self, path: null, kind: 'catalog-ahead', what: reason });
    return { findings: await this.#withPaths(findings), compared: page.length, next };
  }

  /** Compares the replica here with the catalog. @param known a conflict found before @returns null if they agree */
  #finding(file: FileId, place: PlacedFile | null, known: string | null): Finding | null {
    const { self, store, conflicts } = this.#parts;
    const record = store.record(file);
    // It was removed meanwhile, or is about to preserve another file's contents.
    if (record === null || place?.members.length === 0) return null;
    const found = { file, server: self, path: null };
    if (place === null) {
      return {
        ...found,
        kind: 'unnamed',
        what: `replica at ${self} of a file that is not in the catalog`,
      };
    }
    const named = { ...found, members: record.view.members };
    const there = { number: place.view, members: place.members as readonly ServerId[] };
    if (record.view.joint === undefined && viewsConflict(record.view, there)) {
      conflicts.compare(file, record.view, there, 'the catalog');
      const what = `view ${there.number} has ${viewMembersFormat(record.view)} at ${self} and ${viewMembersFormat(there)} at the catalog`;
      return { ...named, kind: 'members', what };
    }
    if (known !== null) return { ...named, kind: 'members', what: known };
    const isAhead = record.view.joint === undefined && record.view.number > place.view;
    if (!isAhead || !viewVoters(record.view).includes(self)) return null;
    const what = `view ${record.view.number} at ${self} and ${place.view} at the catalog`;
    return { ...named, kind: 'catalog-behind', what };
  }

  async #withPaths(findings: readonly Finding[]): Promise<readonly Finding[]> {
    const inodes = findings.filter(({ kind }) => kind !== 'unnamed').map(({ file }) => file);
    const { query } = this.#parts;
    const answers = await this.#askCatalogs(inodes, (own) => query({ kind: 'paths', inodes: own }));
    const paths = answers.flatMap((answer) => answer.paths);
    const names = new Map(paths.map(({ inode, volume, path }) => [inode, `${volume}:${path}`]));
    return findings.map((finding) => ({ ...finding, path: names.get(finding.file) ?? null }));
  }

  /** Asks each catalog about its own files. The catalog of a removed volume has none. */
  async #askCatalogs<Answer>(
    inodes: readonly number[],
    ask: (inodes: number[]) => Promise<Answer>,
  ): Promise<readonly Answer[]> {
    const byCatalog = Map.groupBy(inodes, (inode) => this.#parts.catalogOf(inode));
    const asked = [...byCatalog.values()].map((own) =>
      ask(own).catch((error: unknown) => {
        if (error instanceof ServiceError && error.code === 'not-found') return null;
        throw error;
      }),
    );
    return (await Promise.all(asked)).filter((answer) => answer !== null);
  }
}
