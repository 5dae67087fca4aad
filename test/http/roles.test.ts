import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { type FastifyInstance, fastify } from 'fastify';
import { READ, type RouteRole, requireRoles, WRITE } from '../../server/http/roles.ts';

/**
 * The server builds its application under the same rule: every test that starts one proves that all its routes have a
 * role.
 */
describe('roles of routes', () => {
  let app: FastifyInstance;
  const roles: (RouteRole | undefined)[] = [];

  beforeEach(() => {
    roles.length = 0;
    app = fastify();
    requireRoles(app);
    app.addHook('onRequest', async ({ routeOptions }) => {
      roles.push(routeOptions.config.role);
    });
  });
  afterEach(() => app.close());

  test('a route without a role is refused, also in a scope of its own', async () => {
    assert.throws(() => app.get('/forgotten', async () => 'x'), /The route GET \/forgotten has a role/);
    app.register(async (scope) => {
      scope.post('/inner', async () => 'x');
    });
    await assert.rejects(async () => app.ready(), /The route POST \/inner has a role/);
  });

  test("the authorization hook knows a request's role, also of HEAD", async () => {
    app.get('/look', READ, async () => 'x');
    app.put('/change', { ...WRITE, bodyLimit: 10 }, async () => 'x');
    await app.inject({ method: 'GET', url: '/look' });
    await app.inject({ method: 'HEAD', url: '/look' });
    await app.inject({ method: 'PUT', url: '/change' });
    assert.deepEqual(roles, ['read', 'read', 'write']);
  });
});
