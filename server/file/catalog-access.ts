import type { FileId } from '../../base/ids.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';

/** The catalog as the file service needs it. Calls go over the network unless this server is its primary. */
export interface CatalogAccess {
  /** As the catalog has them, not merged with what primaries know. */
  attributes(file: FileId): Promise<Attributes>;
  /** From the catalog's replica on this server; null if there is none, or it does not have them. Sends no request. */
  recentAttributes(file: FileId): Attributes | null;
  command(command: Command): Promise<unknown>;
  /** As `command`; resolves when its changes survive a loss of power of all servers. */
  durably(command: Command): Promise<unknown>;
  /** Resolves when all commands answered so far survive a loss of power. */
  flush(): Promise<void>;
  /** The newest epoch of the catalog that is known without a request; it never decreases. */
  epoch(): number;
}
