import type { FastifyInstance } from 'fastify';
import { LateErrorReport } from '../../wire/late-errors.ts';
import type { LateErrorReports } from '../live/late-errors.ts';
import { matching } from './matching.ts';
import { WRITE } from './roles.ts';

const lateError = matching(LateErrorReport);

/** `POST /v1/mounts/late-errors`: a mount has dropped an acknowledged operation. */
export function lateErrorRoutes(app: FastifyInstance, reports: Pick<LateErrorReports, 'report'>): void {
  app.post('/v1/mounts/late-errors', WRITE, async (request, reply) => {
    reports.report(lateError(request.body, 'body'));
    return reply.code(204).send();
  });
}
