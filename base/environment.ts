/** Clients' environment variables. A server's check for misspelled options accepts them. */
export const CLIENT_VARIABLES = {
  servers: 'LEASEHOLD_SERVERS',
  ca: 'LEASEHOLD_CA',
  clientCert: 'LEASEHOLD_CLIENT_CERT',
  clientKey: 'LEASEHOLD_CLIENT_KEY',
  revoked: 'LEASEHOLD_REVOKED',
  token: 'LEASEHOLD_TOKEN',
  tokenFile: 'LEASEHOLD_TOKEN_FILE',
} as const;

/** The passphrase of encrypted backups. */
export const PASSPHRASE_VARIABLE = 'LEASEHOLD_BACKUP_PASSPHRASE';

/** The zone of a client; servers read theirs from the same variable. */
export const ZONE_VARIABLE = 'LEASEHOLD_ZONE';
