import { ServiceError } from '../../base/errors.ts';
import { parseRetention, RETENTION_FORM, type Retention } from '../../wire/retention.ts';

/** @throws ServiceError `bad-request` */
export function retentionOf(text: string): Retention {
  const retention = parseRetention(text);
  if (retention !== null) return retention;
  throw new ServiceError(
    'bad-request',
    `Invalid value of "retain" ${JSON.stringify(text)}: write ${RETENTION_FORM}`,
  );
}
