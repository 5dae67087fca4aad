import type { Attributes } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { generalFailure } from '../terminal/failure.ts';
import type { CallOptions } from '../transport/exchange.ts';

export interface Found {
  /** Relative to the top; `.` for the top itself. */
  readonly path: string;
  readonly attributes: Attributes;
}

/** Yields everything below a directory, each directory before its entries. */
export async function* walk(
  client: ClusterClient,
  top: Attributes,
  call: CallOptions,
): AsyncGenerator<Found, void, undefined> {
  yield { path: '.', attributes: top };
  if (top.kind === 'directory') yield* below(client, top, '', call);
}

async function* below(
  client: ClusterClient,
  directory: Attributes,
  prefix: string,
  call: CallOptions,
): AsyncGenerator<Found, void, undefined> {
  for await (const { name, attributes } of client.list(directory, call)) {
    if (name.includes('/') || name === '.' || name === '..')
      throw generalFailure(`Cannot list "${prefix}": a server returned the invalid name "${name}"`);
    const path = `${prefix}${name}`;
    yield { path, attributes };
    if (attributes.kind === 'directory') yield* below(client, attributes, `${path}/`, call);
  }
}
