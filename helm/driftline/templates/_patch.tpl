{{/* A value that a patch changes: objects are merged; so are lists of objects with a name, by it (volumeMounts by mountPath),
where new init containers go first, and a volume is replaced whole; anything else is replaced. Pods of studies are patched
by the same rules (service/launchers/kubernetes/pod_patch.py, test_pod_patch.py). Arguments: old, new, key (under which
both stand). JSON, under `value` */}}
{{- define "driftline.patched" -}}
{{- $value := .new -}}
{{- if and (kindIs "map" .old) (kindIs "map" .new) -}}
{{- $value = deepCopy .old -}}
{{- range $key, $new := .new -}}
{{- if hasKey $value $key -}}
{{- $new = (include "driftline.patched" (dict "old" (get $value $key) "new" $new "key" $key) | fromJson).value -}}
{{- end -}}
{{- $_ := set $value $key $new -}}
{{- end -}}
{{- else if and (kindIs "slice" .old) (kindIs "slice" .new) -}}
{{- $by := ternary "mountPath" "name" (eq .key "volumeMounts") -}}
{{- $named := true -}}
{{- range concat .old .new -}}
{{- if not (and (kindIs "map" .) (hasKey . $by)) -}}{{- $named = false -}}{{- end -}}
{{- end -}}
{{- if $named -}}
{{- $items := dict -}}
{{- $known := list -}}
{{- range .old -}}{{- $known = append $known (get . $by) -}}{{- $_ := set $items (get . $by) . -}}{{- end -}}
{{- $added := list -}}
{{- range .new -}}
{{- $name := get . $by -}}
{{- $item := . -}}
{{- if not (hasKey $items $name) -}}{{- $added = append $added $name -}}
{{- else if ne $.key "volumes" -}}
{{- $item = (include "driftline.patched" (dict "old" (get $items $name) "new" . "key" "") | fromJson).value -}}
{{- end -}}
{{- $_ := set $items $name $item -}}
{{- end -}}
{{- $value = list -}}
{{- range ternary (concat $added $known) (concat $known $added) (eq .key "initContainers") -}}
{{- $value = append $value (get $items .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}

{{/* Refuses a patch of a container that is not there. Arguments: path (of the patch), patch, names (of the containers) */}}
{{- define "driftline.checkPatch" -}}
{{- range dig "spec" "containers" list .patch -}}
{{- if not (or .image (has .name $.names)) -}}
{{- fail (printf "%s.spec.containers must name %s, or have an image, got %s without one" $.path (join ", " $.names) .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
