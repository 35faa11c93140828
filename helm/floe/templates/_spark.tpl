{{/* A CronJob that runs Spark, (dict "context" "name" "schedule" "command" "resources"). */}}
{{- define "floe.sparkJob" -}}
---
apiVersion: batch/v1
kind: CronJob
{{ include "floe.metadata" (list .context .name dict dict) }}
spec:
  schedule: {{ .schedule | quote }}
  # A run that is late by more is left out; two at once would only do each other's work.
  startingDeadlineSeconds: 600
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      # The next run does what this one did not.
      backoffLimit: 0
      ttlSecondsAfterFinished: 86400
      template:
        {{- include "floe.sparkPod" (merge (dict "restart" "Never" "labels" dict "annotations" dict) .) | trim | nindent 8 }}
{{ end -}}

{{/* Spark that stays, (dict "context" "name" "command" "resources"). */}}
{{- define "floe.sparkDeployment" -}}
{{- $labels := dict "app.kubernetes.io/component" "audit" }}
---
apiVersion: apps/v1
kind: Deployment
{{ include "floe.metadata" (list .context .name $labels dict) }}
spec:
  replicas: 1
  # Two at once would only do each other's work.
  strategy:
    type: Recreate
  selector:
    matchLabels: {{- merge (include "floe.testSelector" .context | fromYaml) $labels | toYaml | nindent 6 }}
  template:
    {{- $annotations := include "floe.configChecksum" .context | fromYaml }}
    {{- include "floe.sparkPod" (merge (dict "restart" "Always" "labels" $labels "annotations" $annotations) .) | trim | nindent 4 }}
{{ end -}}

{{/* A pod's metadata and spec, (dict "context" "command" "resources" "restart" "labels" "annotations"). */}}
{{- define "floe.sparkPod" -}}
{{- $command := .command }}
{{- $resources := .resources }}
{{- $restart := .restart }}
{{- $labels := .labels }}
{{- $annotations := .annotations }}
{{- with .context }}
{{- $full := include "floe.fullname" . }}
{{- $group := first (include "floe.groups" . | fromJson).groups }}
{{- $scheme := ternary "http" "https" (empty .Values.http.tls.secretName) }}
{{ include "floe.podMetadata" (list . (merge (include "floe.testSelector" . | fromYaml) $labels) $annotations) }}
spec:
  restartPolicy: {{ $restart }}
  serviceAccountName: {{ include "floe.serviceAccountName" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.spark.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.spark.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- include "floe.podSecurity" . | nindent 4 }}
  containers:
    - name: spark
      image: {{ .Values.spark.image }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: {{- toYaml $command | nindent 8 }}
      workingDir: /var/lib/floe
      # The last lines say what could not be done, or where topic and table differ.
      terminationMessagePolicy: FallbackToLogsOnError
      securityContext: {{- include "floe.containerSecurity" . | nindent 8 }}
      env:
        {{- include "floe.env" (list . $group) | nindent 8 }}
        - name: HOME
          value: /var/lib/floe
        - name: FLOE_BOOTSTRAP
          value: {{ printf "%s:%v" $full .Values.kafka.port }}
        - name: FLOE_HTTP
          value: {{ printf "%s://%s-http:%v" $scheme $full .Values.http.port }}
        - name: FLOE_JARS
          value: {{ .Values.spark.jars }}
        - name: FLOE_SPARK_JARS
          value: {{ .Values.spark.jars }}
        - name: FLOE_KAFKA_JARS
          value: {{ .Values.spark.kafkaJars }}
        {{- with .Values.objectStore.credentialsSecretName }}
        {{- include "floe.secretEnv" (list "AWS_ACCESS_KEY_ID" . "access-key") | trim | nindent 8 }}
        {{- include "floe.secretEnv" (list "AWS_SECRET_ACCESS_KEY" . "secret-key") | trim | nindent 8 }}
        {{- end }}
        {{- with .Values.spark.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      resources: {{- toYaml $resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/floe/floe.yaml
          subPath: floe.yaml
          readOnly: true
        - name: scratch
          mountPath: /var/lib/floe
        - name: scratch
          mountPath: /tmp
          subPath: tmp
        {{- with include "floe.keyMounts" . | trim }}{{- . | nindent 8 }}{{- end }}
        {{- with concat .Values.extraVolumeMounts .Values.spark.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ $full }}
    - name: scratch
      emptyDir:
        sizeLimit: {{ .Values.spark.scratchSize }}
    {{- with include "floe.keyVolumes" . | trim }}{{- . | nindent 4 }}{{- end }}
    {{- with concat .Values.extraVolumes .Values.spark.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{ end -}}
