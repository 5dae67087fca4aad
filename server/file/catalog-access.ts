import type { FileId } from '../../base/ids.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';

/** The catalog as the file service needs it: where this server is not its primary, it is asked over the network. */
export interface CatalogAccess {
  /** As the catalog has them, not merged with what primaries know. */
  attributes(file: FileId): Promise<Attributes>;
  /**
   * The attributes of a file made a moment ago, as a replica of the catalog on this server has them; null where there
   * is none, or it has nothing of that kind. Sends no request.
   */
  justMade(file: FileId): Attributes | null;
  command(command: Command): Promise<unknown>;
  /** As `command`: what it changes survives a loss of power of all servers when it resolves. */
  durably(command: Command): Promise<unknown>;
  /** All commands answered so far survive power loss when it resolves. */
  flush(): Promise<void>;
  /** The newest epoch of the catalog that is known without asking; never less than before. */
  epoch(): number;
}
