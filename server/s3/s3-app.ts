import type { IncomingMessage } from 'node:http';
import {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
  LogController,
} from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { xmlError } from '../../platform/s3-xml.ts';
import { roleIncludes } from '../../wire/access.ts';
import type { WholeFiles } from '../file/whole-files.ts';
import { Directories } from '../http/directories.ts';
import { Downloads } from '../http/download.ts';
import { contentTypeOf, isForm } from '../http/form.ts';
import { guardHosts, type HostNames } from '../http/hosts.ts';
import { NewFiles } from '../http/new-files.ts';
import { refuseConnection, reportedError } from '../http/problems.ts';
import { installTracing } from '../http/tracing.ts';
import { Uploads } from '../http/upload.ts';
import { closeAfterUnsent } from '../requests/expectation.ts';
import type { Gateway } from '../routing/gateway.ts';
import { type Connections, refuseOverLimit } from '../security/connections.ts';
import { createListener, LISTENER_LIMITS } from '../security/listener.ts';
import { limitOpenRequests, limitUploadsPerClient } from '../security/open-limits.ts';
import { type Principal, principalName } from '../security/principal.ts';
import type { RateLimits } from '../security/rate-limits.ts';
import { limitSlowBodies } from '../security/slow-bodies.ts';
import type { TlsMaterial } from '../security/tls-material.ts';
import type { TokenStore } from '../security/token-file.ts';
import { assertVolumeGranted } from '../security/volume-scope.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { type Authenticated, authenticate, verifyPolicy } from './authentication.ts';
import { BucketOperations } from './bucket-operations.ts';
import { type BucketRoot, Buckets } from './buckets.ts';
import { header, type S3Call } from './call.ts';
import { addCorsHeaders, type CorsRule } from './cors.ts';
import { OWNER } from './list-objects.ts';
import { MultipartUploads } from './multipart.ts';
import { MultipartOperations } from './multipart-operations.ts';
import { ObjectOperations, removeChecksums } from './object-operations.ts';
import { IMPLICIT_XATTR } from './object-record.ts';
import { ObjectStore } from './object-store.ts';
import { Operations } from './operations.ts';
import { postObject } from './post-object.ts';
import { S3Error, s3ErrorOf } from './s3-error.ts';
import { type ParsedTarget, parseTarget } from './target.ts';

export interface S3Options {
  readonly gateway: Gateway;
  readonly log: FastifyBaseLogger;
  readonly metrics: MetricsRegistry;
  readonly wholeFiles: WholeFiles | null;
  readonly tls: TlsMaterial | null;
  /** Null if the server authenticates no client. */
  readonly tokens: TokenStore | null;
  readonly connections: Connections;
  readonly limits: RateLimits;
  readonly requestsOpenMax: number;
  readonly root: BucketRoot;
  /** Names of this server, for requests without credentials. */
  readonly hosts: HostNames;
  /** Hosts that have buckets as their first name. */
  readonly domains: readonly string[];
  readonly uploadExpiryMs: number;
}

const RETRY_AFTER_S = '1';
const METHODS = ['GET', 'HEAD', 'PUT', 'POST', 'DELETE', 'OPTIONS'];

/** Builds the listener of S3, without listening. Every request has one route: S3 has rules of its own for paths. */
export function buildS3App(options: S3Options): FastifyInstance {
  const { gateway, log, metrics, tls, connections, requestsOpenMax } = options;
  const { world } = gateway;
  const app: FastifyInstance = fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    serverFactory: (handler) => createListener(handler, tls, log, LISTENER_LIMITS, connections),
    forceCloseConnections: true,
    rewriteUrl: routingUrl,
    frameworkErrors: (error, request, reply) => sendError(error, request, reply),
    clientErrorHandler: (error, socket) => refuseConnection(world, error, socket),
    pluginTimeout: 0,
  });
  installTracing(app, world);
  closeAfterUnsent(app);
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  app.setNotFoundHandler((request, reply) =>
    sendError(new S3Error('MethodNotAllowed', `${request.method} is no method of S3`), request, reply),
  );
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.decorateRequest('principal', null);
  refuseOverLimit(app, connections, world);
  guardHosts(app, options.tokens === null ? options.hosts : null);
  const service = new S3Service(options);
  app.addHook('onRequest', async (request, reply) => service.authenticate(request, reply));
  limitOpenRequests(app, requestsOpenMax);
  limitUploadsPerClient(app, () => true);
  limitSlowBodies(app, world, () => true);
  app.addHook('onSend', async (request, reply) => {
    reply.header('x-amz-request-id', request.id);
    // Clients would check it against the contents that this answer leaves out.
    if (reply.statusCode === 304) removeChecksums(reply);
    // A refused body is read to its end, so that the client reads the answer.
    if (!request.raw.complete) request.raw.resume();
    request.raw.setTimeout(0);
  });
  countOperations(app, metrics, service);
  // S3 ignores expectations that it does not know.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  app.route({ method: METHODS, url: '/', handler: (request, reply) => service.handle(request, reply) });
  return app;

  function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const { s3, status, message } = s3ErrorOf(reportedError(world, error, request).error);
    for (const name of Object.keys(reply.getHeaders()))
      if (name !== 'content-range' && !name.startsWith('access-control-')) reply.removeHeader(name);
    if (status === 503) reply.header('retry-after', RETRY_AFTER_S);
    const [resource = ''] = request.originalUrl.split('?');
    const document = xmlError({ Code: s3, Message: message, Resource: resource, RequestId: request.id });
    return reply
      .code(status)
      .type('application/xml')
      .send(Buffer.from(request.method === 'HEAD' ? '' : document));
  }
}

/** Hides the target from the router, and the type of the body from Fastify; handlers read `originalUrl`. */
function routingUrl(request: IncomingMessage): string {
  // Fastify would refuse a malformed one: `contentTypeOf` reads it as it was sent.
  delete request.headers['content-type'];
  return '/';
}

function countOperations(app: FastifyInstance, metrics: MetricsRegistry, service: S3Service): void {
  const requests = metrics.counter('leasehold_s3_requests_total', 'Requests of S3, by operation and status', [
    'operation',
    'status',
  ]);
  app.addHook('onResponse', async (request, reply) => {
    requests.add(1, { operation: service.operationOf(request), status: String(reply.statusCode) });
  });
}

/** Answers requests: who sends them, what they may do, and which operation they are. */
class S3Service {
  readonly #options: S3Options;
  readonly #buckets: Buckets;
  readonly #objects: ObjectStore;
  readonly #ofBuckets: BucketOperations;
  readonly #operations: Operations;
  readonly #calls = new WeakMap<FastifyRequest, Pick<S3Call, 'payload'> & ParsedTarget>();
  readonly #names = new WeakMap<FastifyRequest, string>();

  constructor(options: S3Options) {
    const { gateway, wholeFiles, root, uploadExpiryMs: expiryMs } = options;
    const { world } = gateway;
    this.#options = options;
    this.#buckets = new Buckets(gateway, root);
    const directories = new Directories(gateway, [IMPLICIT_XATTR]);
    const files = new NewFiles(gateway, { uploads: new Uploads(gateway), directories, wholeFiles });
    const objects = new ObjectStore({ gateway, files, directories, buckets: this.#buckets });
    this.#objects = objects;
    this.#ofBuckets = new BucketOperations({ gateway, buckets: this.#buckets, objects });
    const ofObjects = new ObjectOperations({
      buckets: this.#buckets,
      objects,
      downloads: new Downloads(gateway),
    });
    const uploads = new MultipartUploads({ gateway, world, files, objects, expiryMs });
    const ofUploads = new MultipartOperations({
      world,
      buckets: this.#buckets,
      objects,
      uploads,
      of: ofObjects,
    });
    this.#operations = new Operations({
      ...{ buckets: this.#buckets, objects, ofBuckets: this.#ofBuckets, ofObjects, ofUploads },
    });
  }

  operationOf(request: FastifyRequest): string {
    return this.#names.get(request) ?? 'none';
  }

  /** Finds out who sends a request. A preflight has no credentials, and a form has its own. */
  async authenticate(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { domains, limits, connections } = this.#options;
    const address = request.raw.socket.remoteAddress ?? '';
    const target = parseTarget(request, domains);
    const isOpen = request.method === 'OPTIONS' || isFormOf(request, target);
    if (isOpen) {
      limits.take(null, address);
      this.#calls.set(request, { ...target, payload: { kind: 'plain', sha256: null } });
      return;
    }
    const { principal, payload } = await this.#authenticated(request, reply, target);
    request.principal = principal;
    this.#calls.set(request, { ...target, payload });
    connections.markProven(request.raw.socket);
    limits.take(principal, address);
  }

  /** The page of another origin that a rule allows can read why its request is refused, as that its URL has expired. */
  async #authenticated(
    request: FastifyRequest,
    reply: FastifyReply,
    target: ParsedTarget,
  ): Promise<Authenticated> {
    const { tokens, limits, gateway } = this.#options;
    try {
      return authenticate(request, target, tokens, gateway.world.wallMs());
    } catch (error) {
      if (target.bucket !== null && request.headers.origin !== undefined) {
        limits.take(null, request.raw.socket.remoteAddress ?? '');
        await this.#addCors({ request, reply }, target.bucket);
      }
      throw error;
    }
  }

  async handle(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const known = this.#calls.get(request);
    if (known === undefined) throw new S3Error('AccessDenied', 'Access denied');
    const { bucket, key, parameters, payload } = known;
    if (request.method === 'OPTIONS') return this.#preflight(request, reply, bucket);
    const principal: Principal = request.principal ?? { kind: 'anyone' };
    const call: S3Call = { request, reply, bucket, key, query: parameters, payload, principal };
    const isForm = isFormOf(request, known);
    await this.#assertOrigin(call, isForm);
    if (isForm) return this.#form(call);
    const operation = this.#operations.find(call);
    this.#names.set(request, operation.name);
    this.#assertAllowed(principal, operation.role, bucket);
    assertOwner(call);
    return operation.run(call);
  }

  /**
   * A page of another origin may use what its own signature allows. Where the browser's address or certificate is
   * enough, any page could do what its user may: then the bucket's rules decide. @throws S3Error `AccessDenied`
   */
  async #assertOrigin(call: S3Call, isForm: boolean): Promise<void> {
    const { request, bucket, query } = call;
    const { origin, authorization } = request.headers;
    if (origin === undefined) return;
    const isAllowed = bucket !== null && (await this.#addCors(call, bucket));
    const isSigned = isForm || authorization !== undefined || query.has('X-Amz-Signature');
    if (isAllowed || (isSigned && this.#options.tokens !== null)) return;
    throw new S3Error('AccessDenied', `Pages of ${origin} may not use this bucket: set its CORS`);
  }

  /** @throws S3Error `AccessDenied` */
  #assertAllowed(principal: Principal, role: 'read' | 'write' | 'admin', bucket: string | null): void {
    if (principal.kind === 'anyone') return;
    if (principal.kind === 'server') throw new S3Error('AccessDenied', 'Access denied');
    const { grant } = principal;
    if (!roleIncludes(grant.role, role))
      throw new S3Error(
        'AccessDenied',
        `"${grant.name}" has the role ${grant.role}; this needs the role ${role}`,
      );
    if (bucket !== null) assertVolumeGranted(grant, this.#buckets.volumeOf(bucket));
  }

  async #addCors({ request, reply }: Pick<S3Call, 'request' | 'reply'>, bucket: string): Promise<boolean> {
    return addCorsHeaders(await this.#rulesOf(bucket), request, reply, request.method);
  }

  /** None if there is no such bucket, which a client without credentials must not learn. */
  async #rulesOf(bucket: string): Promise<CorsRule[]> {
    try {
      return await this.#ofBuckets.corsOf(this.#buckets.named(bucket));
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') return [];
      throw error;
    }
  }

  async #preflight(
    request: FastifyRequest,
    reply: FastifyReply,
    bucket: string | null,
  ): Promise<FastifyReply> {
    const method = String(request.headers['access-control-request-method'] ?? '');
    if (request.headers.origin === undefined || method === '')
      throw new S3Error('InvalidRequest', 'A preflight has Origin and Access-Control-Request-Method');
    const rules = bucket === null ? [] : await this.#rulesOf(bucket);
    if (addCorsHeaders(rules, request, reply, method)) return reply.code(200).send();
    throw new S3Error(
      'AccessDenied',
      'No rule of the bucket allows this request of a page of another origin',
    );
  }

  #form(call: S3Call): Promise<FastifyReply> {
    const { tokens, gateway } = this.#options;
    const nowMs = gateway.world.wallMs();
    this.#names.set(call.request, 'PostObject');
    const bucket = this.#buckets.named(call.bucket ?? '');
    return postObject(call, bucket, this.#objects, nowMs, (fields, policy) => {
      const principal = verifyPolicy(fields, policy, tokens, nowMs);
      call.request.principal = principal;
      this.#assertAllowed(principal, 'write', bucket.name);
      call.request.log.debug({ principal: principalName(principal) }, 'form with a signed policy');
    });
  }
}

/** @throws S3Error `AccessDenied` unless the client expects the owner that all buckets have */
function assertOwner(call: S3Call): void {
  for (const name of ['x-amz-expected-bucket-owner', 'x-amz-source-expected-bucket-owner']) {
    const expected = header(call, name);
    if (expected !== undefined && expected !== OWNER.ID)
      throw new S3Error('AccessDenied', `The owner of the bucket is "${OWNER.ID}", not that of ${name}`);
  }
}

/** A form is sent to a bucket, and signed in its fields. */
function isFormOf(request: FastifyRequest, { bucket, key, parameters }: ParsedTarget): boolean {
  return (
    request.method === 'POST' &&
    bucket !== null &&
    key === null &&
    !parameters.has('delete') &&
    isForm(contentTypeOf(request.raw))
  );
}
