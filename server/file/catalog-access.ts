import type { FileId } from '../../base/ids.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';

/** The catalog as the file service needs it. Calls go over the network unless this server is its primary. */
export interface CatalogAccess {
  /** The attributes as the catalog has them, without those that a live file's primary knows. */
  attributes(file: FileId): Promise<Attributes>;
  /** Attributes of a new file from the catalog's replica on this server; null if it has none. Sends no request. */
  recentAttributes(file: FileId): Attributes | null;
  command(command: Command): Promise<unknown>;
  /** As `command`; resolves when its changes survive a loss of power of all servers. */
  durably(command: Command): Promise<unknown>;
  /** Resolves when all commands answered so far survive a loss of power. */
  flush(): Promise<void>;
  /** The newest epoch of the catalog that is known without a request; it never decreases. */
  epoch(): number;
}
