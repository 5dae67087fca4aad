/** The configuration cannot be used. The message names option, value, why, and what to do; exit code 2. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
}
