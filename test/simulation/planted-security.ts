/** Known bugs of who may do what, each noticed by a test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const RULES = 'test/security/rules.test.ts';
const LIMITS = 'test/security/limits.test.ts';

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
  replica(
    '73e',
    'a capability is believed for every file',
    {
      file: 'server/security/authorization.ts',
      find: 'capability.file === file &&',
      replace: '',
    },
    {
      test: {
        file: RULES,
        name: 'a capability is for its file, what it says may be done, its holder and its volume',
      },
    },
  ),
  replica(
    '73f',
    'whoever has the capability of somebody else uses it',
    {
      file: 'server/security/authorization.ts',
      find: 'capability.to === grant.name &&',
      replace: '',
    },
    {
      test: {
        file: RULES,
        name: 'a capability is for its file, what it says may be done, its holder and its volume',
      },
    },
  ),
  replica(
    '73g',
    'what may be read may be written',
    {
      file: 'server/security/authorization.ts',
      find: "(mode === 'read' || capability.mode === 'write') &&",
      replace: '',
    },
    {
      test: {
        file: RULES,
        name: 'a capability is for its file, what it says may be done, its holder and its volume',
      },
    },
  ),
  replica(
    '73h',
    'a capability of a volume is good for whoever has lost that volume',
    {
      file: 'server/security/authorization.ts',
      find: '(grant.volumes === null || grant.volumes.includes(capability.volume))',
      replace: 'true',
    },
    {
      test: {
        file: RULES,
        name: 'a capability is for its file, what it says may be done, its holder and its volume',
      },
    },
  ),
  replica(
    '73i',
    'a token that was taken out of the file stays good',
    {
      file: 'server/security/token-book.ts',
      find: 'this.#entries = new Map(tokens.map((token) => [token.id, entryOf(token)]));',
      replace:
        'this.#entries = new Map([...this.#entries, ...tokens.map((token) => [token.id, entryOf(token)] as const)]);',
    },
    {
      test: {
        file: RULES,
        name: 'a token that is gone from the file is worth nothing, once the file was read again',
      },
    },
  ),
  replica(
    '73j',
    'a certificate that is revoked is believed',
    {
      file: 'server/security/revocations.ts',
      find: 'return this.#serials.has(serialText(certificate.serialNumber));',
      replace: 'return this.#serials.has(certificate.subject);',
    },
    { test: { file: RULES, name: 'whoever is shut out by a list is let in no more, and cut off' } },
  ),
  replica(
    '73k',
    'the connections of whoever is revoked go on',
    {
      file: 'server/security/revocations.ts',
      find: 'for (const [socket] of ended) socket.destroy();',
      replace: '',
    },
    { test: { file: RULES, name: 'whoever is shut out by a list is let in no more, and cut off' } },
  ),
  replica(
    '73l',
    'a client does not look at its list',
    {
      file: 'client/revoked-servers.ts',
      find: 'if (wrong !== undefined || !this.#serials.has(serialText(certificate.serialNumber))) return wrong;',
      replace: 'if (wrong !== undefined || this.#serials.size >= 0) return wrong;',
    },
    { test: { file: RULES, name: 'whoever is shut out by a list is let in no more, and cut off' } },
  ),
  replica(
    '73m',
    'requests of a client are not counted',
    {
      file: 'server/security/rate-limits.ts',
      find: 'bucket.left -= 1;',
      replace: '',
    },
    { test: { file: LIMITS, name: 'one client asks no more than it may, and the others do not feel it' } },
  ),
  replica(
    '73n',
    'all clients have one bound together',
    {
      file: 'server/security/rate-limits.ts',
      find: "principal.kind === 'anyone' ? addressKey(address) : principalName(principal);",
      replace: "principal.kind === 'anyone' ? addressKey(address) : 'all';",
    },
    { test: { file: LIMITS, name: 'one client asks no more than it may, and the others do not feel it' } },
  ),
  replica(
    '73o',
    'whoever guesses tokens has no bound',
    {
      file: 'server/security/rate-limits.ts',
      find: 'if (principal === null) this.#takeFrom(this.#strangers, addressKey(address), STRANGER_REQUESTS_PER_S);',
      replace: 'if (principal === null) return;',
    },
    { test: { file: LIMITS, name: 'one client asks no more than it may, and the others do not feel it' } },
  ),
  replica(
    '73p',
    'nobody is told that his address has too many connections',
    {
      file: 'server/security/connections.ts',
      find: 'isSurplus: counts.all > perAddress, isProven',
      replace: 'isSurplus: false, isProven',
    },
    {
      test: {
        file: LIMITS,
        name: 'one address has so many connections, is told so at the next, and not answered at all beyond twice as many',
      },
    },
  ),
  replica(
    '73p1',
    'a failed handshake leaves its connection open',
    {
      file: 'server/security/listener.ts',
      find: "server.prependListener('tlsClientError', (_error, socket) => socket.destroy());",
      replace: '',
    },
    {
      test: {
        file: LIMITS,
        name: 'a connection to a port with TLS that never begins a handshake ends, and leaves nothing behind',
      },
    },
  ),
  replica(
    '73p2',
    'clients without proof take all connections',
    {
      file: 'server/security/connections.ts',
      find: "this.#refuse(oldest.socket, 'unproven');",
      replace: '',
    },
    {
      test: {
        file: LIMITS,
        name: 'clients that do not prove who they are leave room for those that do, and the oldest of them goes',
      },
    },
  ),
  replica(
    '73p3',
    'a foreign name that resolves to a server reaches it',
    {
      file: 'server/http/app.ts',
      find: 'guardHosts(app, tokens === null ? hosts : null);',
      replace: 'guardHosts(app, null);',
    },
    {
      test: {
        file: 'test/security/rebinding.test.ts',
        name: 'nothing is read, changed or followed as evil.example',
      },
    },
  ),
  replica(
    '73p4',
    'an upgrade under a foreign name is accepted',
    {
      file: 'server/composition.ts',
      find: 'const reason = isPage ? refusedHost(request, hosts) : null;',
      replace: 'const reason = null as string | null;',
    },
    {
      test: {
        file: 'test/security/rebinding.test.ts',
        name: 'a WebSocket and a connection for contents of a foreign page are refused before all else',
      },
    },
  ),
  replica(
    '73p5',
    'contents that drip in keep their slot',
    {
      file: 'server/security/slow-bodies.ts',
      find: 'if (begun.steps >= STEPS) raw.destroy();',
      replace: '',
    },
    {
      test: {
        file: LIMITS,
        name: 'contents that drip in end their connection; those for which the server lets wait do not',
        hangs: true,
      },
    },
  ),
  replica(
    '73p6',
    'one client takes all slots of uploads',
    {
      file: 'server/security/open-limits.ts',
      find: 'if (count >= slots.max - slots.all) {',
      replace: 'if (slots.all >= slots.max) {',
    },
    { test: { file: LIMITS, name: 'one client sends as many uploads as it leaves free for others' } },
  ),
  replica(
    '73p7',
    'a client that waits is asked for its body before its request is judged',
    {
      file: 'server/security/listener.ts',
      find: "server.on('checkContinue', continueWhenRead(handler));",
      replace: '',
    },
    {
      test: {
        file: 'test/http/expectation.test.ts',
        name: 'an upload that is refused is not asked for its body, and its connection ends',
      },
    },
  ),
  replica(
    '73p8',
    'a label of a body that is not there has a request refused',
    {
      file: 'server/http/app.ts',
      find: "if (!hasBody(request.headers)) delete request.headers['content-type'];",
      replace: '',
    },
    {
      test: {
        file: 'test/http/empty-bodies.test.ts',
        name: 'every route takes a label for a body that is not there',
      },
    },
  ),
  replica(
    '73p9',
    'the log of a mount goes where another user has put a link',
    {
      file: 'client/mount-log.ts',
      find: 'if (!found.isDirectory() || found.uid !== uid) return false;',
      replace: '',
    },
    {
      test: {
        file: 'test/client/mount-log.test.ts',
        name: 'a folder that another user could change or has put there is not used',
      },
    },
  ),
  replica(
    '73q',
    'a token that ends while a change is being told is not told of',
    {
      file: 'server/security/token-book.ts',
      find: '.filter((ms) => ms > nowMs)',
      replace: '.filter((ms) => ms > Date.now())',
    },
    {
      test: {
        file: RULES,
        name: 'the end of a token is told also where it comes while another change is being told',
      },
    },
  ),
];
