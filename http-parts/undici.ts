import { createRequire } from 'node:module';
import type * as Undici from 'undici';

/**
 * What is used of undici, and nothing else of it: as a whole it brings `fetch`, WebSockets, caches and mocks along, a
 * seventh of the start of a command. Only this module knows where the parts are in the package (decision 0078).
 */
const part = createRequire(import.meta.url);

type Url = string | URL;
type RequestOptions = NonNullable<Parameters<typeof Undici.request>[1]>;

const api = part('undici/lib/api/index.js') as {
  request(this: Undici.Dispatcher, options: object): ReturnType<typeof request>;
};
const { prototype } = part('undici/lib/dispatcher/dispatcher.js') as { readonly prototype: object };
const { getGlobalDispatcher } = part('undici/lib/global.js') as Pick<typeof Undici, 'getGlobalDispatcher'>;
const { parseURL } = part('undici/lib/core/util.js') as { parseURL(url: Url): URL };

// As the package does when it is loaded as a whole: by themselves its classes have `dispatch` only.
Object.assign(prototype, api);

/** Connections to one server. */
export const Pool = part('undici/lib/dispatcher/pool.js') as typeof Undici.Pool;
export type Pool = Undici.Pool;

/** Connections to any servers. */
export const Agent = part('undici/lib/dispatcher/agent.js') as typeof Undici.Agent;
export type Agent = Undici.Agent;

/** Makes what makes the connections of a pool or an agent. */
export const buildConnector = part('undici/lib/core/connect.js') as typeof Undici.buildConnector;
export type Connector = Undici.buildConnector.connector;

export type { Dispatcher } from 'undici';

/** One exchange with the server of a URL, over connections of the whole process where no others are given. */
export async function request(
  url: Url,
  options: RequestOptions = {},
): Promise<Undici.Dispatcher.ResponseData> {
  const { dispatcher = getGlobalDispatcher(), ...rest } = options;
  const { origin, pathname, search } = parseURL(url);
  const method = options.method ?? (options.body ? 'PUT' : 'GET');
  return await api.request.call(dispatcher, { ...rest, origin, path: `${pathname}${search}`, method });
}
