/** Known bugs of who may do what, each noticed by a test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const RULES = 'test/security/rules.test.ts';

export const PLANTED_SECURITY: readonly Planted[] = [
  replica(
    '73a',
    'the signature of a capability does not cover all of its fields',
    {
      file: 'server/security/capabilities.ts',
      find: '.update(payload).digest()',
      replace: '.update(payload.slice(0, 8)).digest()',
    },
    { test: { file: RULES, name: 'a capability is worth nothing with any of its fields changed' } },
  ),
  replica(
    '73b',
    'a capability that was good once is good for ever',
    {
      file: 'server/security/capabilities.ts',
      find: 'if (capability === null || capability.untilMs <= this.#nowMs()) return null;',
      replace: 'if (capability === null) return null;',
    },
    { test: { file: RULES, name: 'a capability ends when its time is over, also where it was used before' } },
  ),
  replica(
    '73c',
    'whoever is let in may do everything',
    {
      file: 'server/security/authorization.ts',
      find: 'if (roleIncludes(role, wanted)) return;',
      replace: 'return;',
    },
    { test: { file: RULES, name: 'a role lets do what it includes, and no more' } },
  ),
  replica(
    '73d',
    'whoever is let in for one volume reaches all',
    {
      file: 'server/security/volume-scope.ts',
      find: 'if (grant.volumes !== null && !grant.volumes.includes(volume)) {',
      replace: 'if (false) {',
    },
    { test: { file: RULES, name: 'who is let in for a volume reaches no other, by name or by number' } },
  ),
];
