import type { FastifyInstance } from 'fastify';
import type { RevokedList } from '../../wire/tokens.ts';
import type { TokenStore } from '../security/token-file.ts';
import { READ } from './roles.ts';

/** `GET /v1/certificates/revoked`, without the names of other clients. Without `tokens` nothing can be revoked. */
export function revocationRoutes(app: FastifyInstance, tokens: TokenStore | null): void {
  app.get('/v1/certificates/revoked', READ, async (): Promise<RevokedList> => {
    const revoked = tokens?.revokedCertificates ?? [];
    return { revoked: revoked.map((certificate) => ({ ...certificate, name: null })) };
  });
}
