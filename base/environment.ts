/** Clients' environment variables. Servers accept them in their own environment; they are no typing errors there. */
export const CLIENT_VARIABLES = {
  servers: 'LEASEHOLD_SERVERS',
  ca: 'LEASEHOLD_CA',
  clientCert: 'LEASEHOLD_CLIENT_CERT',
  clientKey: 'LEASEHOLD_CLIENT_KEY',
  revoked: 'LEASEHOLD_REVOKED',
  token: 'LEASEHOLD_TOKEN',
  tokenFile: 'LEASEHOLD_TOKEN_FILE',
} as const;
