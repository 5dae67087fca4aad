/**
 * Variables of the environment that clients read. A server may find them in its own, beside those of its options: they
 * are no slips of the pen.
 */
export const CLIENT_VARIABLES = {
  servers: 'LEASEHOLD_SERVERS',
  ca: 'LEASEHOLD_CA',
  clientCert: 'LEASEHOLD_CLIENT_CERT',
  clientKey: 'LEASEHOLD_CLIENT_KEY',
  revoked: 'LEASEHOLD_REVOKED',
  token: 'LEASEHOLD_TOKEN',
  tokenFile: 'LEASEHOLD_TOKEN_FILE',
} as const;
