{{/* A pod template: what a part sets itself (`own`) over what all pods of the chart share.

Arguments: root; component; part: the part's values; path: where these are in values.yaml; own: YAML with
  account           scheduler, studies or service (the default)
  annotations, spec metadata and fields of the pod that differ from the shared ones
  spread            whether its pods should be on different nodes
  job               whether it ends by itself
  early             whether it runs before the objects of the release exist (a pre-upgrade hook)
  late              whether it runs when they are gone (a post-delete hook)
  volumes, containers, initContainers; a container that names no image runs Driftline's */}}
{{- define "driftline.pod" -}}
{{- $own := fromYaml .own -}}
{{- with $own.Error -}}{{- fail . -}}{{- end -}}
{{- $spec := include "driftline.podSpec" (dict "root" .root "component" .component "part" .part "own" $own) | fromYaml | merge ($own.spec | default dict) -}}
{{- $lists := dict "initContainers" list "containers" list -}}
{{- $foreign := false -}}
{{- range $key, $_ := $lists -}}
{{- range get $own $key | default list -}}
{{- if .image -}}{{- $foreign = true -}}{{- end -}}
{{- $made := include "driftline.container" (dict "root" $.root "part" $.part "path" $.path "container" .) | fromYaml -}}
{{- $_ := set $lists $key (append (get $lists $key) $made) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $spec "containers" $lists.containers -}}
{{- with $lists.initContainers -}}{{- $_ := set $spec "initContainers" . -}}{{- end -}}
{{- $scratch := ternary list (include "driftline.scratch" .root | fromYamlArray) $foreign -}}
{{- $_ := set $spec "volumes" (concat $scratch ($own.volumes | default list)) -}}
{{- $metadata := dict "labels" (include "driftline.podLabels" . | fromYaml) -}}
{{- with $own.annotations -}}{{- $_ := set $metadata "annotations" . -}}{{- end -}}
{{- $patch := .part.podPatch | default dict -}}
{{- range $key, $_ := include "driftline.selector" . | fromYaml -}}
{{- if hasKey (dig "metadata" "labels" dict $patch) $key -}}
{{- fail (printf "%s.podPatch.metadata.labels must not hold %s, by which the chart finds its own pods" $.path $key) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $lists.containers -}}{{- $names = append $names .name -}}{{- end -}}
{{- include "driftline.checkPatch" (dict "path" (printf "%s.podPatch" .path) "patch" $patch "names" $names) -}}
{{- $pod := dict "metadata" $metadata "spec" $spec -}}
{{- toYaml (include "driftline.patched" (dict "old" $pod "new" $patch "key" "") | fromJson).value -}}
{{- end -}}

{{/* A pod of a Job, on the API's nodes. Arguments: root, component, own, as in driftline.pod; nodes: whose nodes instead;
namespace: that of the Job, where it is not the release's, whose ConfigMaps and Secrets it then cannot mount */}}
{{- define "driftline.jobPod" -}}
{{- $part := pick (.nodes | default .root.Values.api) "nodeSelector" "tolerations" "affinity" -}}
{{- $_ := set $part "priorityClassName" .root.Values.api.priorityClassName -}}
{{- $jobs := .root.Values.jobs -}}
{{- if ne (.namespace | default .root.Release.Namespace) .root.Release.Namespace -}}
{{- $jobs = merge (dict "podPatch" (pick ($jobs.podPatch | default dict) "metadata")) (omit $jobs "podPatch") -}}
{{- end -}}
{{- /* Each Job's container has a name of its own: what a patch says of the others' is not for this one. */ -}}
{{- include "driftline.checkPatch" (dict "path" "jobs.podPatch" "patch" ($jobs.podPatch | default dict) "names" (list "migration" "writable" "download" "studies" "study")) -}}
{{- with dig "spec" "containers" list ($jobs.podPatch | default dict) -}}
{{- $here := list -}}
{{- $mine := (fromYaml $.own).containers -}}
{{- range . -}}
{{- if or .image (eq .name (first $mine).name) -}}{{- $here = append $here . -}}{{- end -}}
{{- end -}}
{{- $spec := merge (dict "containers" $here) (omit $jobs.podPatch.spec "containers") -}}
{{- $jobs = merge (dict "podPatch" (merge (dict "spec" $spec) (omit $jobs.podPatch "spec"))) (omit $jobs "podPatch") -}}
{{- end -}}
{{- $part = merge $part $jobs -}}
{{- $own := printf "job: true\n%s" .own -}}
{{- include "driftline.pod" (dict "root" .root "component" .component "part" $part "path" "jobs" "own" $own) -}}
{{- end -}}

{{/* A Job of the release that may differ from one revision to the next. Kubernetes changes no Job's pods, and Helm rolls
back to no object that the failed revision does not name. So the name is constant, and a hook of the same name, which
needs no pod, takes the Job's place before an upgrade or rollback: Helm deletes the former Job, then the hook, and makes
the new Job (test_chart_rollback.py). Arguments: root, component, own, nodes, namespace, as in driftline.jobPod; deadline */}}
{{- define "driftline.job" -}}
{{- $hooks := "pre-upgrade,pre-rollback" -}}
{{- if and .root.Release.IsUpgrade .namespace (not .root.Values.studies.namespace) -}}
{{- /* Before an upgrade that makes the namespace there is no such Job, and no place for the hook. */ -}}
{{- if and (eq .namespace (include "driftline.studiesNamespace" .root)) (not (lookup "v1" "Namespace" "" .namespace)) -}}
{{- $hooks = "pre-rollback" -}}
{{- end -}}
{{- end -}}
{{- range $hook := list true false }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "driftline.fullname" $.root }}-{{ $.component }}
  namespace: {{ $.namespace | default $.root.Release.Namespace | quote }}
  labels:
    {{- include "driftline.labels" $ | nindent 4 }}
  {{- if $hook }}
  annotations:
    helm.sh/hook: {{ $hooks }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  {{- end }}
spec:
  {{- if $hook }}
  completions: 0
  {{- end }}
  backoffLimit: 3
  {{- with $.deadline }}
  activeDeadlineSeconds: {{ . | int64 }}
  {{- end }}
  template:
    {{- include "driftline.jobPod" $ | nindent 4 }}
{{- end }}
{{- end -}}

{{/* What the pods' specs share. Arguments: those of driftline.pod */}}
{{- define "driftline.podSpec" -}}
{{- $account := include "driftline.serviceAccount" (dict "root" .root "which" (.own.account | default "service")) -}}
{{- $class := include "driftline.priorityClass" (dict "root" .root "which" "service" "name" .part.priorityClassName) -}}
{{- if .own.late -}}{{- $class = .part.priorityClassName -}}{{- end -}}
{{- if and .own.early .root.Release.IsUpgrade -}}
{{- /* Before an upgrade, an account or a class that the upgrade creates does not exist yet. */ -}}
{{- if and .root.Values.api.serviceAccount.create (not (lookup "v1" "ServiceAccount" .root.Release.Namespace $account)) -}}
{{- $account = "default" -}}
{{- end -}}
{{- if and .root.Values.priorityClasses.create (not .part.priorityClassName) (not (lookup "scheduling.k8s.io/v1" "PriorityClass" "" $class)) -}}
{{- $class = "" -}}
{{- end -}}
{{- end -}}
serviceAccountName: {{ $account | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if .own.job }}
restartPolicy: Never
{{- end }}
securityContext:
  {{- include "driftline.podSecurity" .root.Values.podSecurity | nindent 2 }}
{{- with include "driftline.pullSecrets" .root | fromJsonArray }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . | quote }}}
  {{- end }}
{{- end }}
{{- with $class }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with pick .part "nodeSelector" "tolerations" "affinity" }}
{{- range $key, $value := . }}
{{- with $value }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- if .own.spread }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "driftline.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A container. Arguments: those of driftline.pod, and container: what is its own */}}
{{- define "driftline.container" -}}
{{- $root := .root -}}
{{- $ours := not .container.image -}}
{{- $env := include "driftline.env" (dict "root" $root "ours" $ours "own" .container.env "extra" .part.extraEnv "path" (printf "%s.extraEnv" .path)) | fromYamlArray -}}
{{- $mounts := ternary (include "driftline.scratchMounts" $root | fromYamlArray) list $ours -}}
{{- $shared := dict "env" $env "volumeMounts" (concat $mounts (.container.volumeMounts | default list)) -}}
{{- if $ours -}}
{{- $shared = merge $shared (dict "image" (include "driftline.ownImage" $root) "imagePullPolicy" $root.Values.image.pullPolicy) -}}
{{- end -}}
{{- with .part.resources -}}{{- $_ := set $shared "resources" . -}}{{- end -}}
{{- $_ := set $shared "securityContext" (include "driftline.containerSecurity" $root | fromYaml) -}}
{{- toYaml (merge $shared (omit .container "env" "volumeMounts")) -}}
{{- end -}}

{{- define "driftline.podSecurity" -}}
runAsNonRoot: true
{{- with .userId }}
runAsUser: {{ . | int64 }}
{{- end }}
{{- with .groupId }}
runAsGroup: {{ . | int64 }}
fsGroup: {{ . | int64 }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "driftline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "driftline.scratch" -}}
- {name: tmp, emptyDir: {sizeLimit: 2Gi}}
- {name: home, emptyDir: {sizeLimit: 2Gi}}
{{- with .Values.caBundle.configMap }}
- {name: ca, configMap: {name: {{ . | quote }}}}
{{- end }}
{{- end -}}
{{- define "driftline.scratchMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/driftline}
{{- if .Values.caBundle.configMap }}
- {name: ca, mountPath: /etc/driftline-ca, readOnly: true}
{{- end }}
{{- end -}}
