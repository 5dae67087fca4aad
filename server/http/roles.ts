import type { FastifyInstance } from 'fastify';
import { assert } from '../../base/assert.ts';

/** The right that a route needs: to read, to change contents or names, or to change the cluster; `open`: probes. */
export type RouteRole = 'open' | 'read' | 'write' | 'admin';

declare module 'fastify' {
  interface FastifyContextConfig {
    role?: RouteRole;
  }
}

export const OPEN = { config: { role: 'open' } } as const;
export const READ = { config: { role: 'read' } } as const;
export const WRITE = { config: { role: 'write' } } as const;
export const ADMIN = { config: { role: 'admin' } } as const;

/** Demands a role of each route: a route without one stops the server from starting. */
export function requireRoles(app: FastifyInstance): void {
  app.addHook('onRoute', ({ method, url, config }) => {
    assert(config?.role !== undefined, `The route ${method} ${url} has a role`);
  });
}
