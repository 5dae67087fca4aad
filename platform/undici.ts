import { createRequire } from 'node:module';
import type * as Undici from 'undici';

/** The used parts of undici; the whole takes a seventh of a command's start to load (decision 0078). */
const part = createRequire(import.meta.url);

type Url = string | URL;
type RequestOptions = NonNullable<Parameters<typeof Undici.request>[1]>;

const api = part('undici/lib/api/index.js') as {
  request(this: Undici.Dispatcher, options: object): ReturnType<typeof request>;
};
const { prototype } = part('undici/lib/dispatcher/dispatcher.js') as { readonly prototype: object };
const { getGlobalDispatcher } = part('undici/lib/global.js') as Pick<typeof Undici, 'getGlobalDispatcher'>;
const { parseURL } = part('undici/lib/core/util.js') as { parseURL(url: Url): URL };

// As the whole package does: its classes alone have only `dispatch`.
Object.assign(prototype, api);

export const Pool = part('undici/lib/dispatcher/pool.js') as typeof Undici.Pool;
export type Pool = Undici.Pool;

export const Agent = part('undici/lib/dispatcher/agent.js') as typeof Undici.Agent;
export type Agent = Undici.Agent;

export const buildConnector = part('undici/lib/core/connect.js') as typeof Undici.buildConnector;
export type Connector = Undici.buildConnector.connector;

export type { Dispatcher } from 'undici';

/** One exchange with a URL's server; uses the process's global connections by default. */
export async function request(
  url: Url,
  options: RequestOptions = {},
): Promise<Undici.Dispatcher.ResponseData> {
  const { dispatcher = getGlobalDispatcher(), ...rest } = options;
  const { origin, pathname, search } = parseURL(url);
  const method = options.method ?? (options.body ? 'PUT' : 'GET');
  return await api.request.call(dispatcher, { ...rest, origin, path: `${pathname}${search}`, method });
}
