{{- define "driftline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "driftline.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "driftline.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "driftline.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* global.imageRegistry takes the place of the registry in `repository`, if that names one. Arguments: root, image, otherwise (the tag, if the image names none) */}}
{{- define "driftline.image" -}}
{{- $repository := .image.repository -}}
{{- with (.root.Values.global | default dict).imageRegistry -}}
{{- $parts := splitList "/" $repository -}}
{{- if and (rest $parts) (regexMatch "[.:]|^localhost$" (first $parts)) -}}{{- $parts = rest $parts -}}{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (join "/" $parts) -}}
{{- end -}}
{{- if .image.digest -}}{{ $repository }}@{{ .image.digest }}{{- else -}}{{ $repository }}:{{ .image.tag | default .otherwise }}{{- end -}}
{{- end -}}

{{- define "driftline.ownImage" -}}
{{- include "driftline.image" (dict "root" . "image" .Values.image "otherwise" .Chart.AppVersion) -}}
{{- end -}}

{{/* Names of the Secrets with registry credentials, the parent chart's included, as a JSON list */}}
{{- define "driftline.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) -}}
{{- $names = append $names (ternary . (get (ternary dict . (kindIs "string" .)) "name") (kindIs "string" .)) -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end -}}

{{/* Addresses of a Service */}}
{{- define "driftline.ipFamilies" -}}
{{- with .Values.services.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.services.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* The address on which the parts listen: IPv6 and IPv4 where Services may have addresses of IPv6 */}}
{{- define "driftline.listen" -}}
{{- with .Values.services -}}
{{- if or (has "IPv6" (.ipFamilies | default list)) (hasSuffix "DualStack" (.ipFamilyPolicy | default "")) -}}::{{- else -}}0.0.0.0{{- end -}}
{{- end -}}
{{- end -}}

{{/* Image of studies, if the values name one. Arguments: root, image (of all studies, or of a pool) */}}
{{- define "driftline.studiesImage" -}}
{{- if or .image.repository .image.tag .image.digest -}}
{{- $repository := .image.repository | default .root.Values.studies.image.repository | default .root.Values.image.repository -}}
{{- $given := dict "repository" $repository "tag" .image.tag "digest" .image.digest -}}
{{- include "driftline.image" (dict "root" .root "image" $given "otherwise" .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Arguments: root, component */}}
{{- define "driftline.selector" -}}
app.kubernetes.io/name: {{ include "driftline.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "driftline.labels" -}}
{{ include "driftline.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: driftline
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An object's own labels, which take precedence, and the common ones. Arguments: root, component, own */}}
{{- define "driftline.ownLabels" -}}
{{- toYaml (merge (deepCopy (.own | default dict)) (include "driftline.labels" . | fromYaml)) -}}
{{- end -}}

{{/* Labels of pods: without the version, so that a new version alone restarts nothing */}}
{{- define "driftline.podLabels" -}}
{{ include "driftline.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Arguments: root, which (scheduler, service, mlflow, studies or uninstall); api.serviceAccount sets `service`, nothing sets `uninstall` */}}
{{- define "driftline.serviceAccount" -}}
{{- $part := get .root.Values (ternary "api" .which (eq .which "service")) | default dict -}}
{{- $account := $part.serviceAccount | default (dict "create" true) -}}
{{- if $account.name -}}{{ $account.name }}
{{- else if $account.create -}}{{ include "driftline.fullname" .root }}-{{ .which }}
{{- else -}}default
{{- end -}}
{{- end -}}

{{/* Where studies run whose project names no namespace: by default in one that the chart makes */}}
{{- define "driftline.studiesNamespace" -}}
{{- $name := include "driftline.fullname" . -}}
{{- if .Values.studies.namespace -}}{{ .Values.studies.namespace }}
{{- else if eq .Values.studies.launcher "local" -}}{{ .Release.Namespace }}
{{- else -}}
{{- $whole := ternary $name (printf "%s-%s" .Release.Namespace $name) (eq $name .Release.Namespace) -}}
{{- if gt (len $whole) 55 -}}{{- $whole = printf "%s-%s" ($whole | trunc 46 | trimSuffix "-") ($whole | sha256sum | trunc 8) -}}{{- end -}}
{{ $whole }}-studies
{{- end -}}
{{- end -}}

{{/* All pools of workers, as JSON: name to values */}}
{{- define "driftline.pools" -}}
{{- merge (dict "default" .Values.studies.workers) (.Values.studies.pools | default dict) | toJson -}}
{{- end -}}

{{/* Whether Ray's autoscaler adds and removes workers of a pool. Argument: its values */}}
{{- define "driftline.scales" -}}
{{- if ne (dig "min" 1 . | int) (dig "max" 1 . | int) -}}yes{{- end -}}
{{- end -}}

{{/* Whether studies may wait in a queue of Kueue: of all, of a project or of a pool */}}
{{- define "driftline.queued" -}}
{{- $queued := .Values.studies.queue -}}
{{- range .Values.studies.projects -}}{{- $queued = or $queued .queue -}}{{- end -}}
{{- range .Values.studies.pools -}}{{- $queued = or $queued .queue -}}{{- end -}}
{{- if $queued -}}yes{{- end -}}
{{- end -}}

{{/* All namespaces of studies, as a JSON list that begins with the one above */}}
{{- define "driftline.studiesNamespaces" -}}
{{- $names := list (include "driftline.studiesNamespace" .) -}}
{{- range .Values.studies.projects -}}{{- with .namespace -}}{{- $names = append $names . -}}{{- end -}}{{- end -}}
{{- $names | uniq | toJson -}}
{{- end -}}

{{- define "driftline.secretName" -}}{{ include "driftline.fullname" . }}{{- end -}}
{{- define "driftline.authSecret" -}}{{ .Values.auth.existingSecret | default (include "driftline.secretName" .) }}{{- end -}}
{{- define "driftline.databaseSecret" -}}{{ .Values.database.existingSecret | default (include "driftline.secretName" .) }}{{- end -}}
{{- define "driftline.databaseKey" -}}
{{- if .Values.database.existingSecret -}}{{ .Values.database.existingSecretKey }}{{- else -}}database-url{{- end -}}
{{- end -}}
{{- define "driftline.postgresqlSecret" -}}{{ .Values.postgresql.existingSecret | default (include "driftline.secretName" .) }}{{- end -}}
{{- define "driftline.mlflowSecret" -}}{{ .Values.mlflow.existingSecret | default (include "driftline.secretName" .) }}{{- end -}}

{{- define "driftline.apiUrl" -}}
http://{{ include "driftline.fullname" . }}-api.{{ .Release.Namespace }}.svc:{{ .Values.api.service.port | int64 }}
{{- end -}}

{{- define "driftline.records" -}}{{- if or .Values.mlflow.enabled .Values.mlflow.trackingUri -}}yes{{- end -}}{{- end -}}
{{- define "driftline.mlflowUrl" -}}
{{- if .Values.mlflow.enabled -}}http://{{ include "driftline.fullname" . }}-mlflow.{{ .Release.Namespace }}.svc:5000
{{- else -}}{{ .Values.mlflow.trackingUri | default "none" }}{{- end -}}
{{- end -}}
{{/* https where an entry of ingress.tls covers the host, by itself, by a wildcard or without naming hosts. Arguments: root, host */}}
{{- define "driftline.ingressUrl" -}}
{{- $names := list .host (regexReplaceAll "^[^.]+" .host "*") -}}
{{- $scheme := "http" -}}
{{- range .root.Values.ingress.tls -}}
{{- if or (not .hosts) (has (first $names) .hosts) (has (last $names) .hosts) -}}{{- $scheme = "https" -}}{{- end -}}
{{- end -}}
{{ $scheme }}://{{ .host }}
{{- end -}}
{{- define "driftline.mlflowPublicUrl" -}}
{{- if .Values.mlflow.publicUrl -}}{{ .Values.mlflow.publicUrl }}
{{- else if and .Values.ingress.enabled .Values.ingress.mlflowHosts -}}
{{ include "driftline.ingressUrl" (dict "root" . "host" (first .Values.ingress.mlflowHosts).host) }}
{{- else if and .Values.gateway.enabled .Values.gateway.mlflowHostnames -}}
{{ ternary "https" "http" .Values.gateway.tls }}://{{ first .Values.gateway.mlflowHostnames }}
{{- else -}}{{ include "driftline.mlflowUrl" . }}{{- end -}}
{{- end -}}

{{/* A PriorityClass belongs to no namespace; its name distinguishes releases of the same name. Arguments: root, which */}}
{{- define "driftline.ownPriorityClass" -}}
{{ .root.Release.Namespace }}.{{ include "driftline.fullname" .root }}-{{ .which }}
{{- end -}}

{{/* Arguments: root, which (service or studies), name */}}
{{- define "driftline.priorityClass" -}}
{{- if .name -}}{{ .name }}
{{- else if .root.Values.priorityClasses.create -}}{{ include "driftline.ownPriorityClass" . }}
{{- end -}}
{{- end -}}

{{/* Where the chart's PostgreSQL is: the driver of the database reads the password from PGPASSWORD. Arguments: root, name (of the variable), database */}}
{{- define "driftline.postgresqlEnv" -}}
- {name: {{ .name }}, value: "postgresql+psycopg://driftline@{{ include "driftline.fullname" .root }}-postgresql.{{ .root.Release.Namespace }}.svc:5432/{{ .database }}"}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "driftline.postgresqlSecret" .root | quote }}, key: postgres-password}}
{{- end -}}

{{- define "driftline.databaseEnv" -}}
{{- if .Values.postgresql.enabled -}}
{{ include "driftline.postgresqlEnv" (dict "root" . "name" "DRIFTLINE_DATABASE_URL" "database" "driftline") }}
{{- else -}}
- name: DRIFTLINE_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "driftline.databaseSecret" . | quote }}, key: {{ include "driftline.databaseKey" . | quote }}}}
{{- end -}}
{{- end -}}

{{- define "driftline.migrationEnv" -}}
{{- if .Values.database.url -}}
- name: DRIFTLINE_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "driftline.fullname" . }}-migration, key: database-url}}
{{- else -}}
{{ include "driftline.databaseEnv" . }}
{{- end -}}
{{- end -}}

{{- define "driftline.serviceEnv" -}}
{{ include "driftline.databaseEnv" . }}
- name: DRIFTLINE_SECRET
  valueFrom: {secretKeyRef: {name: {{ include "driftline.authSecret" . | quote }}, key: secret}}
- {name: DRIFTLINE_MLFLOW_URL, value: {{ include "driftline.mlflowUrl" . | quote }}}
{{- if include "driftline.records" . }}
- {name: DRIFTLINE_MLFLOW_PUBLIC_URL, value: {{ include "driftline.mlflowPublicUrl" . | quote }}}
{{- end }}
- {name: DRIFTLINE_CHECKPOINTS, value: {{ .Values.checkpoints.url | default "/checkpoints" | quote }}}
{{- if .Values.data.enabled }}
- {name: DATA_DIR, value: /data}
{{- end }}
{{- end -}}

{{/* Environment of one of the chart's containers. The API server refuses duplicate names: variables that the chart sets
cannot be set again, and of all others the last value counts. Arguments: root, ours (whether the image is Driftline's), own, extra, path (where extra stands in the values) */}}
{{- define "driftline.env" -}}
{{- $own := .own | default list -}}
{{- $fixed := list -}}
{{- range $own -}}{{- $fixed = append $fixed .name -}}{{- end -}}
{{- $last := dict -}}
{{- $order := list -}}
{{- if and .ours .root.Values.caBundle.configMap -}}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "AWS_CA_BUNDLE" -}}
{{- $order = append $order . -}}
{{- $_ := set $last . (dict "name" . "value" (include "driftline.caFile" $.root)) -}}
{{- end -}}
{{- end -}}
{{- range list (list "extraEnv" (ternary .root.Values.extraEnv list .ours)) (list .path .extra) -}}
{{- $path := first . -}}
{{- range (last . | default list) -}}
{{- if has .name $fixed -}}
{{- fail (printf "%s must not hold %s, which the chart sets itself: look for the value that it is made from in values.yaml" $path .name) -}}
{{- end -}}
{{- $order = append $order .name -}}
{{- $_ := set $last .name . -}}
{{- end -}}
{{- end -}}
{{- range uniq $order -}}{{- $own = append $own (get $last .) -}}{{- end -}}
{{- toYaml $own -}}
{{- end -}}

{{- define "driftline.caFile" -}}/etc/driftline-ca/{{ .Values.caBundle.key }}{{- end -}}

{{- define "driftline.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* The volume of checkpoints or data. Arguments: name, values, claim */}}
{{- define "driftline.volume" -}}
name: {{ .name }}
{{- if .values.source }}
{{ toYaml .values.source }}
{{- else }}
persistentVolumeClaim: {claimName: {{ .values.existingClaim | default .claim | quote }}}
{{- end }}
{{- end -}}

{{- define "driftline.checkpointsVolume" -}}
{{ include "driftline.volume" (dict "name" "checkpoints" "values" .Values.checkpoints.volume "claim" (printf "%s-checkpoints" (include "driftline.fullname" .))) }}
{{- end -}}

{{- define "driftline.dataVolume" -}}
{{ include "driftline.volume" (dict "name" "data" "values" .Values.data "claim" (printf "%s-data" (include "driftline.fullname" .))) }}
{{- end -}}

{{/* Whether the chart makes the claim for checkpoints. */}}
{{- define "driftline.makesCheckpoints" -}}
{{- with .Values.checkpoints -}}{{- if not (or .url .volume.existingClaim .volume.source) -}}yes{{- end -}}{{- end -}}
{{- end -}}

{{/* Makes Helm leave an object at uninstall, and where later values no longer need it. */}}
{{- define "driftline.keep" -}}
{{- if .Values.persistence.keep -}}
annotations:
  helm.sh/resource-policy: keep
{{- end -}}
{{- end -}}

{{/* Arguments: values of persistence, name, root, accessModes, component; namespace, the release's by default */}}
{{- define "driftline.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name | quote }}
  namespace: {{ .namespace | default .root.Release.Namespace | quote }}
  labels:
    {{- include "driftline.labels" (dict "root" .root "component" .component) | nindent 4 }}
  {{- include "driftline.keep" .root | nindent 2 }}
spec:
  accessModes:
    {{- toYaml .accessModes | nindent 4 }}
  {{- with .values.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .values.size }}
{{- end -}}
