{{- define "floe.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "floe.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "floe.labels" -}}
{{ include "floe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "floe.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "floe.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "floe.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Every group of agents with what it does not say itself: a JSON object {"groups": […]}. */}}
{{- define "floe.groups" -}}
{{- $all := list -}}
{{- $full := include "floe.fullname" . -}}
{{- range default (list (dict)) .Values.groups -}}
{{- $name := ternary (printf "%s-%s" $full (default "" .name)) $full (hasKey . "name") -}}
{{- $own := dict "workload" $name "group" (default "all" .name) "roles" (list "all") "firstOrdinal" 0 -}}
{{- range $key := list "replicas" "zone" "resources" "nodeSelector" "tolerations" "affinity" -}}
{{- $_ := set $own $key (get $.Values $key) -}}
{{- end -}}
{{- /* What is said counts, also 0, "" and {}: sprig's merge takes those for not said. */ -}}
{{- range $key, $value := . -}}
{{- $_ := set $own $key $value -}}
{{- end -}}
{{- $all = append $all $own -}}
{{- end -}}
{{- dict "groups" $all | toJson -}}
{{- end -}}

{{/* What differs between the values and what can work: said when rendering, not when an agent starts. */}}
{{- define "floe.check" -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int (add .Values.preStopSeconds 10)) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be at least preStopSeconds (%d) + 10" (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds)) -}}
{{- end -}}
{{- $names := list -}}
{{- $taken := dict -}}
{{- range (include "floe.groups" . | fromJson).groups -}}
{{- if has .group $names -}}{{- fail (printf "groups: %q is there twice" .group) -}}{{- end -}}
{{- $names = append $names .group -}}
{{- if and .zone $.Values.zoneFromTopologyLabel -}}{{- fail "zoneFromTopologyLabel: leave zone empty, for the release and for every group" -}}{{- end -}}
{{- range $ordinal := untilStep (int .firstOrdinal) (int (add .firstOrdinal .replicas)) 1 -}}
{{- range $.Values.listeners -}}
{{- if and .external (eq .external.type "NodePort") .external.firstNodePort -}}
{{- $port := add .external.firstNodePort $ordinal | toString -}}
{{- if hasKey $taken $port -}}{{- fail (printf "listeners: node port %s would be taken twice; give groups a firstOrdinal of their own" $port) -}}{{- end -}}
{{- $_ := set $taken $port true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports := list (int .Values.kafka.port) (int .Values.http.port) (int .Values.peers.port) -}}
{{- range .Values.listeners -}}
{{- $ports = append $ports (int .port) -}}
{{- if and .external (ne $.Values.kind "StatefulSet") -}}{{- fail (printf "listeners: %s has external, which needs kind: StatefulSet" .name) -}}{{- end -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}{{- fail "kafka.port, http.port, peers.port and the ports of listeners must differ" -}}{{- end -}}
{{- end -}}

{{/* A listener's name as a port's and a Service's. */}}
{{- define "floe.portName" -}}
{{- . | lower | replace "_" "-" -}}
{{- end -}}
