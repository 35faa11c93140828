{{/* The pod of an agent, (list <context> <group>). */}}
{{- define "floe.pod" -}}
{{- $group := index . 1 -}}
{{- with index . 0 -}}
{{- $external := include "floe.externalListeners" . | fromJsonArray -}}
{{- $listeners := (include "floe.listeners" . | fromJson).listeners -}}
{{- $context := . -}}
{{- $probe := include "floe.probePort" . -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (not (empty .Values.http.tls.secretName)) -}}
serviceAccountName: {{ include "floe.serviceAccountName" . }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "floe.podSecurity" . | nindent 2 }}
{{ include "floe.placement" (list . $group) }}
{{- if or $external .Values.initContainers }}
initContainers:
  {{- if $external }}
  {{- include "floe.hasServices" (list . $group $external) | nindent 2 }}
  {{- end }}
  {{- with .Values.initContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - name: agent
    image: {{ include "floe.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: ["serve", "--config", "/etc/floe/floe.yaml"]
    # Why it ended, in `kubectl describe pod`.
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext: {{- include "floe.containerSecurity" . | nindent 6 }}
    env: {{- include "floe.env" (list . $group) | nindent 6 }}
    {{- with .Values.extraEnvFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: kafka
        containerPort: {{ .Values.kafka.port }}
      {{- range .Values.listeners }}
      - name: {{ include "floe.portName" .name }}
        containerPort: {{ .port }}
      {{- end }}
      - name: peers
        containerPort: {{ .Values.peers.port }}
      - name: http
        containerPort: {{ .Values.http.port }}
      {{- if gt (int .Values.processes) 1 }}
      - name: supervisor
        containerPort: {{ .Values.supervisorPort }}
      {{- range $number, $port := include "floe.otherPorts" (list . .Values.http.port) | fromJsonArray }}
      - name: http-{{ add $number 1 }}
        containerPort: {{ $port }}
      {{- end }}
      {{- range $first := prepend $listeners (dict "port" .Values.peers.port) }}
      {{- range $port := include "floe.otherPorts" (list $context $first.port) | fromJsonArray }}
      - containerPort: {{ $port }}
      {{- end }}
      {{- end }}
      {{- end }}
    {{- if .Values.preStopSeconds }}
    # SIGTERM comes once nobody sends new clients here; the agent then leaves Metadata and drains by itself.
    lifecycle:
      preStop:
        sleep: {seconds: {{ .Values.preStopSeconds }}}
    {{- end }}
    # An agent outlives its dependencies: liveness asks only whether the process answers, so an
    # etcd outage never makes Kubernetes kill every agent.
    startupProbe:
      httpGet: {path: /livez, port: {{ $probe }}{{ $scheme }}}
      periodSeconds: 1
      failureThreshold: 120
    livenessProbe:
      httpGet: {path: /livez, port: {{ $probe }}{{ $scheme }}}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: {{ $probe }}{{ $scheme }}}
      periodSeconds: 2
      timeoutSeconds: 3
      failureThreshold: 5
    resources: {{- toYaml $group.resources | nindent 6 }}
    volumeMounts:
      - name: config
        mountPath: /etc/floe/floe.yaml
        subPath: floe.yaml
        readOnly: true
      - name: scratch
        mountPath: /var/lib/floe
      {{- if .Values.etcd.tls.enabled }}
      - name: etcd-tls
        mountPath: /etc/floe/etcd-tls
        readOnly: true
      {{- end }}
      {{- with include "floe.keyMounts" . | trim }}{{- . | nindent 6 }}{{- end }}
      {{- range $listeners }}
      {{- if .encrypted }}
      - name: {{ .id }}-tls
        mountPath: /etc/floe/tls/{{ .id }}
        readOnly: true
      {{- end }}
      {{- end }}
      {{- if .Values.http.tls.secretName }}
      - name: http-tls
        mountPath: /etc/floe/tls/http
        readOnly: true
      {{- end }}
      {{- if .Values.sasl.usersSecretName }}
      - name: users
        mountPath: /etc/floe/users
        readOnly: true
      {{- end }}
      {{- with .Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with .Values.sidecars }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "floe.fullname" . }}
  - name: scratch
    emptyDir:
      sizeLimit: {{ .Values.scratch.sizeLimit }}
  {{- if .Values.etcd.tls.enabled }}
  - name: etcd-tls
    secret:
      secretName: {{ include "floe.etcdSecret" . }}
  {{- end }}
  {{- with include "floe.keyVolumes" . | trim }}{{- . | nindent 2 }}{{- end }}
  {{- range $listeners }}
  {{- if .encrypted }}
  - name: {{ .id }}-tls
    secret:
      secretName: {{ .secret }}
  {{- end }}
  {{- end }}
  {{- with .Values.http.tls.secretName }}
  - name: http-tls
    secret:
      secretName: {{ . }}
  {{- end }}
  {{- with .Values.sasl.usersSecretName }}
  - name: users
    secret:
      secretName: {{ . }}
      items: [{key: users, path: users}]
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "floe.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "floe.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* On which nodes, (list <context> <group>). */}}
{{- define "floe.placement" -}}
{{- $group := index . 1 -}}
{{- with index . 0 -}}
{{- $pods := merge (dict "floe/group" $group.group) (include "floe.selector" . | fromYaml) -}}
{{- $constraints := list -}}
{{- if .Values.topologySpread.enabled -}}
{{- range default (list (dict "topologyKey" "topology.kubernetes.io/zone") (dict "topologyKey" "kubernetes.io/hostname")) .Values.topologySpread.constraints -}}
{{- $whole := dict "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" (dict "matchLabels" $pods) -}}
{{- $constraints = append $constraints (merge (deepCopy .) $whole) -}}
{{- end -}}
{{- end -}}
{{- $affinity := deepCopy $group.affinity -}}
{{- if .Values.podAntiAffinity -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $pods) -}}
{{- $anti := dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
{{- if eq .Values.podAntiAffinity "soft" -}}
{{- $anti = dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- end -}}
{{- if hasKey $affinity "podAntiAffinity" -}}{{- fail (printf "podAntiAffinity: affinity of group %s has a podAntiAffinity of its own; leave one of them out" $group.group) -}}{{- end -}}
{{- $_ := set $affinity "podAntiAffinity" $anti -}}
{{- end -}}
{{- $nodes := $group.nodeSelector -}}
{{- if and $group.zone .Values.groups -}}
{{- $nodes = merge (dict "topology.kubernetes.io/zone" $group.zone) $nodes -}}
{{- end -}}
{{- $said := dict -}}
{{- range $key, $value := dict "topologySpreadConstraints" $constraints "nodeSelector" $nodes "tolerations" $group.tolerations "affinity" $affinity -}}
{{- if $value -}}{{- $_ := set $said $key $value -}}{{- end -}}
{{- end -}}
{{- with $said -}}{{- toYaml . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the listeners with Services of their own for each agent, as JSON. */}}
{{- define "floe.externalListeners" -}}
{{- $names := list -}}
{{- range .Values.listeners -}}{{- if .external -}}{{- $names = append $names .name -}}{{- end -}}{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/*
An agent without Services of its own would send clients to an address that nobody answers at: it does not start, and says why.
(list <context> <group> <names of listeners>)
*/}}
{{- define "floe.hasServices" -}}
{{- $group := index . 1 -}}
{{- $names := index . 2 -}}
{{- with index . 0 -}}
- name: has-services
  image: {{ include "floe.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  command:
    - python
    - -c
    - |
      import os, sys
      pod, end, first = os.environ["POD_NAME"], int(os.environ["SERVICES_END"]), int(os.environ["FIRST_ORDINAL"])
      if int(pod.rpartition("-")[2]) >= end:
          sys.exit(f"{pod} has no Service of its own for {os.environ['LISTENERS']}: there are {end - first}. Raise maxReplicas, or scale down")
  securityContext: {{- include "floe.containerSecurity" . | nindent 4 }}
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: SERVICES_END
      value: {{ add $group.firstOrdinal $group.services | quote }}
    - name: FIRST_ORDINAL
      value: {{ $group.firstOrdinal | int | quote }}
    - name: LISTENERS
      value: {{ join ", " $names | quote }}
  resources: {{- toYaml $group.resources | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* Variables of the agent, (list <context> <group>). */}}
{{- define "floe.env" -}}
{{- $group := index . 1 -}}
{{- with index . 0 -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: FLOE_AGENT__NAME
  value: $(POD_NAME)
- name: FLOE_AGENT__ROLES
  value: {{ join "," $group.roles | quote }}
- name: FLOE_AGENT__ZONE
  {{- if .Values.zoneFromTopologyLabel }}
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['topology.kubernetes.io/zone']
  {{- else }}
  value: {{ $group.zone | quote }}
  {{- end }}
- name: TMPDIR
  value: /var/lib/floe
{{- if gt (int .Values.processes) 1 }}
- name: FLOE_AGENT__PROCESSES
  value: {{ .Values.processes | quote }}
- name: FLOE_AGENT__PORT_STEP
  value: {{ include "floe.portStep" . | quote }}
- name: FLOE_AGENT__SUPERVISOR_PORT
  value: {{ .Values.supervisorPort | quote }}
{{- end }}
{{- with .Values.etcd.authSecretName }}
{{- include "floe.secretEnv" (list "FLOE_LOG__USER" . "username") }}
{{- end }}
{{- if and .Values.objectStore.credentialsSecretName (not (include "floe.keyFiles" .)) }}
{{- include "floe.secretEnv" (list "FLOE_STORE__ACCESS_KEY" .Values.objectStore.credentialsSecretName "access-key") }}
{{- include "floe.secretEnv" (list "FLOE_STORE__SECRET_KEY" .Values.objectStore.credentialsSecretName "secret-key") }}
{{- end }}
{{- with .Values.sasl.adminSecretName }}
{{- include "floe.secretEnv" (list "FLOE_SASL__ADMIN_PASSWORD" . "password") }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* A variable from a Secret, (list <name> <secret> <key>). */}}
{{- define "floe.secretEnv" }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{- end -}}
