import type { CatalogNumber, FileId } from '../../base/ids.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';

/**
 * The catalogs as the file service needs them: each call is about the catalog of one file. Calls go over the network
 * unless this server is its primary.
 */
export interface CatalogAccess {
  /** The attributes as the catalog has them, without those that a live file's primary knows. */
  attributes(file: FileId): Promise<Attributes>;
  /** Attributes of a new file from its catalog's replica on this server; null if it has none. Sends no request. */
  recentAttributes(file: FileId): Attributes | null;
  /** Executes a command about files of one catalog. */
  command(command: Command): Promise<unknown>;
  /** As `command`; resolves when its changes survive a loss of power of all servers. */
  durably(command: Command): Promise<unknown>;
  /** Resolves when all commands that the file's catalog has answered so far survive a loss of power. */
  flush(file: FileId): Promise<void>;
  /** The number of the file's catalog, as far as this server knows. */
  catalogOf(file: number): CatalogNumber;
  /**
   * The newest epoch of the file's catalog that is known without a request: it never decreases, and differs from those
   * of the catalog that the file has left.
   */
  epoch(file: FileId): number;
}
