import type { FastifyInstance } from 'fastify';
import { assert } from '../../base/assert.ts';

/**
 * What a route lets somebody do: look, change contents and names, or change the cluster. `open` is for
 * probes, which say nothing but whether the process lives.
 */
export type RouteRole = 'open' | 'read' | 'write' | 'admin';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Every route has one; a route without one is not let in when the application is built. */
    role?: RouteRole;
  }
}

/** Options of a route, to be given to `app.get` and the like. */
export const OPEN = { config: { role: 'open' } } as const;
export const READ = { config: { role: 'read' } } as const;
export const WRITE = { config: { role: 'write' } } as const;
export const ADMIN = { config: { role: 'admin' } } as const;

/** From now on a route that forgets to say who may use it stops the server from starting. */
export function demandRoles(app: FastifyInstance): void {
  app.addHook('onRoute', ({ method, url, config }) => {
    assert(config?.role !== undefined, `The route ${method} ${url} has a role`);
  });
}
