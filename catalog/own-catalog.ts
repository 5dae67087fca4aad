import { type CatalogNumber, inodesOf, ROOT_CATALOG } from '../base/ids.ts';
import type { CatalogRefusal } from '../wire/volume-catalogs.ts';
import type { Statements } from './statements.ts';

/** A volume's catalog serves once it has begun, until it is closed. */
export interface OwnState {
  /** Of its volume; empty before it has begun. */
  readonly name: string;
  readonly begun: boolean;
  readonly closed: boolean;
  /** The latest removal of the volume that it refused. */
  readonly refused: CatalogRefusal | null;
  /** How far the rows of its volume are imported; absent if none are. */
  readonly imported?: string;
}

interface OwnRow {
  readonly name: string;
  readonly begun: number;
  readonly closed: number;
  readonly refusedSince: number;
  readonly refusedWhy: string;
  readonly imported: string;
}

/** Which catalog the tables are of, and its state. Plain access, no rules. */
export class OwnCatalog {
  readonly #statements: Statements;
  #number: CatalogNumber | null = null;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Never changes. */
  get number(): CatalogNumber {
    this.#number ??= this.#statements.counter('SELECT number FROM own_catalog') as CatalogNumber;
    return this.#number;
  }

  get isRoot(): boolean {
    return this.number === ROOT_CATALOG;
  }

  /** The root directory of a volume that this catalog creates: the first of its numbers. */
  get rootInode(): number {
    return inodesOf(this.number).first;
  }

  state(): OwnState {
    const row = this.#statements.get<OwnRow>(
      'SELECT name, begun, closed, refused_since AS refusedSince, refused_why AS refusedWhy, imported FROM own_catalog',
    ) as OwnRow;
    const { name, begun, closed, refusedSince: since, refusedWhy: why, imported } = row;
    const refused = since === 0 ? null : { since, why };
    const state = { name, begun: begun === 1, closed: closed === 1, refused };
    return imported === '' ? state : { ...state, imported };
  }

  begin(name: string): void {
    this.#statements.run('UPDATE own_catalog SET begun = 1, name = ?', name);
  }

  setImported(position: string): void {
    this.#statements.run('UPDATE own_catalog SET imported = ?', position);
  }

  close(): void {
    this.#statements.run('UPDATE own_catalog SET closed = 1');
  }

  refuse({ since, why }: CatalogRefusal): void {
    this.#statements.run('UPDATE own_catalog SET refused_since = ?, refused_why = ?', since, why);
  }
}
