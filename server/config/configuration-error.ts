/** An invalid configuration. The message has the option, its value, the reason, and what to do; exit code 2. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
}
