{{- define "floe.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{- define "floe.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "floe.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "floe.selector" -}}
app.kubernetes.io/name: {{ include "floe.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The pod of `helm test`: not what floe.selector finds, or Services would send clients to it. */}}
{{- define "floe.testSelector" -}}
app.kubernetes.io/name: {{ include "floe.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* etcd and MinIO of quickstart: no agents, as the pod of `helm test`. */}}
{{- define "floe.quickstartLabels" -}}
app.kubernetes.io/name: {{ include "floe.name" . }}-quickstart
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The chart's own labels. Only those of floe.selector find pods: the others change with versions. */}}
{{- define "floe.ownLabels" -}}
{{ include "floe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "floe.labels" -}}
{{- merge (include "floe.ownLabels" . | fromYaml) .Values.commonLabels | toYaml -}}
{{- end -}}

{{/* metadata of an object, (list <context> <name> <its labels> <its annotations>), with those that all objects have. */}}
{{- define "floe.metadata" -}}
{{- $context := index . 0 -}}
metadata:
  name: {{ index . 1 }}
  labels: {{- merge (dict) (index . 2) (include "floe.labels" $context | fromYaml) | toYaml | nindent 4 }}
  {{- with merge (dict) (default (dict) (index . 3)) $context.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* metadata of a pod that something makes, (list <context> <its labels> <its annotations>), with those that all pods have. */}}
{{- define "floe.podMetadata" -}}
{{- $context := index . 0 -}}
metadata:
  labels: {{- merge (dict) (index . 1) $context.Values.commonLabels | toYaml | nindent 4 }}
  {{- with merge (dict) (index . 2) $context.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* What changes with the agents' configuration, as an annotation: pods that read it at their start are made anew. */}}
{{- define "floe.configChecksum" -}}
checksum/config: {{ include (print .Template.BasePath "/configmap.yaml") . | sha256sum }}
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

{{/* The Secret with etcd's authority and the agents' certificate: the one that is named, or that cert-manager writes. */}}
{{- define "floe.etcdSecret" -}}
{{- if .Values.etcd.tls.certManager.enabled -}}
{{- default (printf "%s-etcd-client" (include "floe.fullname" .)) .Values.etcd.tls.secretName -}}
{{- else -}}
{{- .Values.etcd.tls.secretName -}}
{{- end -}}
{{- end -}}

{{/*
Every group of agents with what it does not say itself: a JSON object {"groups": […]}. Beside its values a group has
  workload     name of its StatefulSet or Deployment
  scaled       whether others say how many agents there are
  least        agents that are there in any case
  services     agents, from firstOrdinal on, that have Services of their own
*/}}
{{- define "floe.groups" -}}
{{- $all := list -}}
{{- $full := include "floe.fullname" . -}}
{{- range default (list (dict)) .Values.groups -}}
{{- $name := ternary (printf "%s-%s" $full (default "" .name)) $full (hasKey . "name") -}}
{{- $own := dict "workload" $name "group" (default "all" .name) "roles" (list "all") "firstOrdinal" 0 -}}
{{- range $key := list "replicas" "maxReplicas" "zone" "resources" "nodeSelector" "tolerations" "affinity" "autoscaling" -}}
{{- $_ := set $own $key (get $.Values $key) -}}
{{- end -}}
{{- /* What is said counts, also 0, "" and {}: sprig's merge takes those for not said. */ -}}
{{- $scaling := dict -}}
{{- range $said := list $.Values.autoscaling (default (dict) .autoscaling) -}}
{{- range $key, $value := $said -}}
{{- $_ := set $scaling $key $value -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := . -}}
{{- $_ := set $own $key $value -}}
{{- end -}}
{{- $_ := set $own "autoscaling" $scaling -}}
{{- $auto := $scaling.enabled -}}
{{- $_ := set $own "scaled" (or $auto $.Values.scaledByOthers) -}}
{{- $_ := set $own "least" (int (ternary $scaling.minReplicas $own.replicas $auto)) -}}
{{- $_ := set $own "services" (max $own.replicas $own.maxReplicas (ternary $scaling.maxReplicas 0 $auto)) -}}
{{- $all = append $all $own -}}
{{- end -}}
{{- dict "groups" $all | toJson -}}
{{- end -}}

{{/*
How many agents a workload says that it has, (list <context> <group>); nothing where others say so.
A field that helm has set and then leaves out becomes 1: an autoscaler that is switched on would find one agent left. So what helm
still owns of a workload that is there stays as it is, until the first who scales it owns it. Helm 3, which merges instead of owning, always says what is there.
*/}}
{{- define "floe.replicas" -}}
{{- $group := index . 1 -}}
{{- with index . 0 -}}
{{- if not $group.scaled -}}
{{- $group.replicas -}}
{{- else -}}
{{- $there := lookup "apps/v1" .Values.kind .Release.Namespace $group.workload -}}
{{- $applied := false -}}
{{- $owned := false -}}
{{- range dig "metadata" "managedFields" list $there -}}
{{- if and (eq .manager "helm") (eq .operation "Apply") -}}
{{- $applied = true -}}
{{- $owned = hasKey (dig "fieldsV1" "f:spec" dict .) "f:replicas" -}}
{{- end -}}
{{- end -}}
{{- if and $there (or $owned (not $applied)) -}}{{- $there.spec.replicas -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Agents that are there in any case, over all groups. */}}
{{- define "floe.leastAgents" -}}
{{- $agents := 0 -}}
{{- range (include "floe.groups" . | fromJson).groups -}}
{{- $agents = add $agents .least -}}
{{- end -}}
{{- $agents -}}
{{- end -}}

{{/* Seconds that an agent has to stop, from SIGTERM on. */}}
{{- define "floe.stopSeconds" -}}
{{- sub (sub .Values.terminationGracePeriodSeconds .Values.preStopSeconds) 5 -}}
{{- end -}}

{{/* A listener's name as a port's and a Service's. */}}
{{- define "floe.portName" -}}
{{- . | lower | replace "_" "-" -}}
{{- end -}}

{{/* What every port of a pod's second agent is above the first one's (agent.port_step), and so on. */}}
{{- define "floe.portStep" -}}100{{- end -}}

{{/* The port that says how a pod is: of its agent, or of the process that watches several. */}}
{{- define "floe.probePort" -}}
{{- ternary "supervisor" "http" (gt (int .Values.processes) 1) -}}
{{- end -}}

{{/* Where metrics are, as names of ports, JSON: of all of a pod on one page, or, where agents ask who comes, of each. */}}
{{- define "floe.metricsPorts" -}}
{{- $ports := list (include "floe.probePort" .) -}}
{{- if and (ne .Values.http.authentication "none") (not .Values.http.metricsOpen) -}}
{{- $ports = list "http" -}}
{{- range $number := untilStep 1 (int .Values.processes) 1 -}}{{- $ports = append $ports (printf "http-%d" $number) -}}{{- end -}}
{{- end -}}
{{- $ports | toJson -}}
{{- end -}}

{{/* Numbers of the ports that a pod's other agents listen on beside one of the first's, (list <context> <port>), as JSON. */}}
{{- define "floe.otherPorts" -}}
{{- $ports := list -}}
{{- $port := index . 1 | int -}}
{{- $step := include "floe.portStep" . | int -}}
{{- range $number := untilStep 1 (int (index . 0).Values.processes) 1 -}}{{- $ports = append $ports (add $port (mul $step $number)) -}}{{- end -}}
{{- $ports | toJson -}}
{{- end -}}

{{/* Ports of the listeners, as a Service lists them. */}}
{{- define "floe.kafkaPorts" -}}
- name: kafka
  port: {{ .Values.kafka.port }}
  targetPort: kafka
{{- range .Values.listeners }}
- name: {{ include "floe.portName" .name }}
  port: {{ .port }}
  targetPort: {{ include "floe.portName" .name }}
{{- end }}
{{- end -}}
