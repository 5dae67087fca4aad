/** Parts of which workloads are made. */
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import type { CallOptions } from '../../../../client/transport/exchange.ts';
import type { Attributes } from '../../../../wire/catalog-api.ts';
import type { ClientProgram, MountProgram } from '../program.ts';
import type { Run } from '../run.ts';

export const ROOT_OWNS = { uid: 0, gid: 0 } as const;
/** The time limit of calls that must succeed. */
export const CALL = { timeoutMs: 20_000 } as const;

/**
 * @param thinkMsMax the longest pause between two turns
 * @param begin creates what the turns of one thread share
 * @returns a thread that takes turns until all programs end
 */
export function turns<Program extends ClientProgram | MountProgram, Own = undefined>(
  thinkMsMax: number,
  turn: (program: Program, own: Own) => Promise<unknown>,
  begin: (program: Program) => Own = () => undefined as Own,
): (program: Program) => Promise<void> {
  return async (program) => {
    const own = begin(program);
    while (!program.isEnding) {
      await turn(program, own);
      await program.think(thinkMsMax);
    }
  };
}

/** @returns the state that the programs of one run share */
export function perRun<State>(make: () => State): (run: Run) => State {
  return (run) => run.state(make);
}

/** @returns the rows, each as often as its weight */
export function weighted<Row extends { readonly weight: number }>(rows: readonly Row[]): Row[] {
  return rows.flatMap((row) => Array.from({ length: row.weight }, () => row));
}

/** Things in use, by key: the search for an order grows with the operations, so that each is replaced in time. */
export class Rotation<Thing> {
  readonly #current = new Map<string, { readonly thing: Thing; operations: number }>();

  /** Counts an operation. @param make creates the next one */
  current(key: string, operationsMax: number, make: () => Thing): Thing {
    const known = this.#current.get(key);
    if (known !== undefined && ++known.operations < operationsMax) return known.thing;
    const thing = make();
    this.#current.set(key, { thing, operations: 1 });
    return thing;
  }

  get all(): Thing[] {
    return [...this.#current.values()].map(({ thing }) => thing);
  }
}

type Place = { readonly volume: string; readonly path: string };

/** Creates a file; finds an existing one unless `exclusive`. */
export async function createFile(
  client: ClusterClient,
  place: Place,
  exclusive: boolean,
  options: CallOptions = CALL,
  uid = 0,
): Promise<Attributes> {
  const command = { kind: 'create-file', place, mode: 0o644, uid, gid: 0, exclusive } as const;
  return (await client.command(command, options)).attributes;
}

/** @returns bytes of a file as latin1 */
export async function textOf(
  handle: FileHandle,
  offset: number,
  length: number,
  options?: CallOptions,
): Promise<string> {
  return Buffer.from((await handle.read(offset, length, options)).bytes).toString('latin1');
}
